# Functions for environments whose packages are a site's wheels: `$packages` is `site`, for those that pip's own
# configuration on the host names, or the folder of the wheels. Nothing is asked of a network.

# Whether there is the folder; says if not.
find_wheels() {
  [ "$packages" = site ] || [ -d "$packages" ] || { echo "the folder of wheels is not on this host: $packages"; return 1; }
}

# Makes the empty environment $2 of the Python $1.
make_empty() {
  if command -v virtualenv >/dev/null 2>&1; then
    VIRTUALENV_OVERRIDE_APP_DATA=$TMPDIR/virtualenv virtualenv --quiet --no-download --python "$1" "$2"
  else
    "$1" -m venv "$2"
  fi
}

# Calls `pip install` of the environment $1 with the other arguments.
install_wheels() {
  environment=$1
  shift
  case $packages in
    site) ;;
    *) set -- --find-links "$packages" "$@" ;;
  esac
  "$environment/bin/python" -m pip install --no-index --no-cache-dir --disable-pip-version-check --no-input --progress-bar off "$@"
}

# The same, with the output kept in the file `$TMPDIR/pip.out`.
install_and_tell() {
  { rc=0; install_wheels "$@" 2>&1 || rc=$?; echo "$rc" >"$TMPDIR/pip.rc"; } | tee "$TMPDIR/pip.out"
  read -r rc <"$TMPDIR/pip.rc"
  return "$rc"
}

# Prints all wheels of the package $1, for whichever Python, in one line.
wheels_of() {
  if [ "$packages" != site ]; then
    (cd "$packages" && ls) 2>/dev/null | grep -i "^$1-[0-9].*\.whl$"
  elif command -v avail_wheels >/dev/null 2>&1; then
    timeout 60 avail_wheels "$1" 2>/dev/null
  fi | head -n 20 | tr -s ' \t' ' ' | tr '\n' ';' | sed 's/ *;$//; s/ *;/; /g'
}

# Whose wheels they are, for a sentence.
whose_wheels() { if [ "$packages" = site ]; then echo "the site's wheels"; else echo "the wheels in $packages"; fi; }

# The package that the last `pip install` did not find, and the versions of it that it saw.
missed() { sed -n 's/^ERROR: Could not find a version that satisfies the requirement \([A-Za-z0-9._-]*\).*/\1/p' "$TMPDIR/pip.out" | tail -n 1; }
versions_seen() { sed -n 's/^ERROR: Could not find a version .*(from versions: \(.*\))$/\1/p' "$TMPDIR/pip.out" | tail -n 1; }

# Installs Ray $2 with the extras $3 into the environment $1, or says what the wheels lack.
install_ray() {
  ! install_and_tell "$1" "ray[$3]==$2" || return 0
  missing=$(missed)
  seen=$(versions_seen)
  python_is=$("$1/bin/python" -c 'import platform, sys; print("Python %d.%d on %s" % (*sys.version_info[:2], platform.machine()))')
  case $missing in
    "")
      grep -q 'conflicting dependencies' "$TMPDIR/pip.out" || return 1
      lack="wheels that fit together"
      ;;
    ray)
      if [ "${seen:-none}" != none ]; then
        echo "$(whose_wheels) have no Ray $2 for $python_is; they have $seen"
        return 1
      fi
      others=$(wheels_of ray)
      if [ "$packages" = site ] && ! "$1/bin/python" -m pip config list 2>/dev/null | grep -q find-links; then
        echo "pip's configuration on this host names no wheels (find-links)"
      elif [ -n "$others" ]; then
        echo "$(whose_wheels) have no Ray for $python_is; they have $others"
      else
        echo "$(whose_wheels) have no Ray at all"
      fi
      return 1
      ;;
    *) lack="a wheel of $missing that fits" ;;
  esac
  if [ "$3" != default ] && install_wheels "$1" --quiet --dry-run "ray[default]==$2" >/dev/null 2>&1; then
    echo "$(whose_wheels) have Ray $2, but its extras ${3#default,} cannot be had: they need $lack"
  elif [ -n "$missing" ]; then
    echo "$(whose_wheels) have no $missing that fits, which Ray $2 needs"
  else
    echo "$(whose_wheels) do not fit together for Ray $2"
  fi
  return 1
}

# Whether $1 is the version $2, or that with a site's suffix: 2.60.0+computecanada.
is_version() { case $1 in "$2" | "$2+"*) ;; *) return 1 ;; esac; }
