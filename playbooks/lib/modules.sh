# Functions for environment modules (Lmod, Environment Modules).

# Prints the exported variables as shell code, one a line. What holds a line break is left out: it is a function.
print_variables() {
  awk 'BEGIN {
    quote = sprintf("%c", 39)
    for (name in ENVIRON) {
      if (name !~ /^[A-Za-z_][A-Za-z0-9_]*$/ || ENVIRON[name] ~ /\n/) continue
      if (name ~ /^(_|PWD|OLDPWD|SHLVL|AWKPATH|AWKLIBPATH|TMPDIR|GPUCL_.*)$/) continue
      count = split(ENVIRON[name], parts, quote)
      text = parts[1]
      for (at = 2; at <= count; at++) text = text quote "\\" quote quote parts[at]
      print "export " name "=" quote text quote
    }
  }' | LC_ALL=C sort
}

# Loads the modules $1 one by one, and writes all variables to the file $2. Fails with 3 where nothing is named `module`.
load_each() {
  command -v module >/dev/null 2>&1 || return 3
  for name in $1; do
    # The oldest Environment Modules report an error by words only.
    if ! module load "$name" >"$2.said" 2>&1 || grep -q ':ERROR:' "$2.said"; then
      cat "$2.said"
      echo "the module $name cannot be loaded"
      return 1
    fi
    cat "$2.said"
  done
  print_variables >"$2"
}

# `module` is a function that login shells have. Calls `load_each` in a shell that has it from $3: one of its files, a
# login shell (`login`), or this shell (`here`).
load_by() {
  # shellcheck source=/dev/null
  case $3 in
    here) (set +eu && load_each "$1" "$2") ;;
    login) timeout 60 bash -l -c '. "$1"; load_each "$2" "$3"' - "$gpucl_home/lib/modules.sh" "$1" "$2" ;;
    *) (set +eu && { . "$3" >/dev/null 2>&1 || :; } && load_each "$1" "$2") ;;
  esac
}

# Loads the modules $1, and writes to the file $2 what that changes, as shell code for programs that start later.
save_modules() {
  new=$gpucl_home/$2.new
  print_variables >"$new.before"
  rm -f "$new" "$new.words"
  found=
  for way in here "${MODULESHOME:-/nowhere}/init/sh" "${LMOD_PKG:-/nowhere}/init/sh" \
    /etc/profile.d/z00_lmod.sh /etc/profile.d/lmod.sh /etc/profile.d/modules.sh \
    /usr/share/lmod/*/init/sh /usr/share/[Mm]odules/init/sh login; do
    case $way in /*) [ -r "$way" ] || continue ;; esac
    code=0
    load_by "$1" "$new" "$way" >"$new.out" 2>&1 || code=$?
    if [ "$code" -eq 0 ] && [ -s "$new" ]; then
      found=yes
      break
    fi
    # Of several failures, the one with words of `module` itself is shown.
    if grep -q 'cannot be loaded$' "$new.out"; then mv -f "$new.out" "$new.words"; fi
  done
  if [ -z "$found" ]; then
    if [ -s "$new.words" ]; then cat "$new.words"; else echo "there is no command \`module\` on this host, which should load $1"; fi
    rm -f "$new" "$new".*
    return 1
  fi
  cat "$new.out"
  {
    echo "# $1 on $(uname -n)"
    awk 'NR == FNR { before[$0]; next } !($0 in before)' "$new.before" "$new"
    sed 's/^export \([^=]*\)=.*/unset \1/' "$new" >"$new.names"
    sed 's/^export \([^=]*\)=.*/unset \1/' "$new.before" | awk 'NR == FNR { after[$0]; next } !($0 in after)' "$new.names" -
  } >"$new.whole"
  mv -f "$new.whole" "$gpucl_home/$2"
  rm -f "$new" "$new".*
}
