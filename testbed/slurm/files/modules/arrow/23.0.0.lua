-- STAND-IN of a module of the site: only sets a variable.
whatis("arrow/23.0.0")
setenv("EBROOTARROW", "/opt/wheelhouse")
