# Jupyter works in $workspace as user 1000 and as nobody else: the folder is that user's own, and not the home of a person.
if [ ! -d "$workspace" ]; then
    echo "workspace: there is no folder $workspace on this host"
    exit 1
fi
owner=$(stat -L -c %u "$workspace")
if [ "$owner" != 1000 ]; then
    echo "workspace: $workspace belongs to user $owner, and Jupyter is user 1000"
    exit 1
fi
if [ -e "$workspace/.ssh" ]; then
    echo "workspace: $workspace is somebody's home, with the keys to it in .ssh: take a folder in it"
    exit 1
fi
