-- STAND-IN of a module of the site: only sets a variable.
whatis("gcc/9.3.0")
setenv("EBROOTGCC", "/usr")
