# Removes what the stage has started. Also runs after a failure, and when there is nothing.
docker rm -f "$project-fill" "$project-filler" >/dev/null 2>&1 || :
docker network rm "${project}_fill" >/dev/null 2>&1 || :
