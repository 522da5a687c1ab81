# Builds the image $image from the folder build/$title; the arguments are those of `docker build`.
file=build/$title/Dockerfile
if ! timeout 20 docker buildx version >/dev/null 2>&1; then
    # The classic builder has no caches to mount.
    sed 's/ --mount=type=cache[^ ]*//' "$file" >"$file.classic"
    file=$file.classic
fi
rm -f "build/$title.failed"
# BuildKit numbers and times each line.
{
    BUILDKIT_PROGRESS=plain docker build --file "$file" --label "gpucl.tag=$project" --tag "$image" "$@" "build/$title" 2>&1 ||
        : >"build/$title.failed"
} | sed -u 's/^#[0-9][0-9]* [0-9][0-9]*\.[0-9]* //'
[ ! -e "build/$title.failed" ]
