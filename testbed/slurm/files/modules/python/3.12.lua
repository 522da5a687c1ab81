-- STAND-IN of a module of the site: only sets a variable.
whatis("python/3.12")
setenv("EBROOTPYTHON", "/usr")
