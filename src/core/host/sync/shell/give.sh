# Writes an archive of the names in the input. What is gone since, or cannot be read, is missing in it.
tar -cf - --format=gnu --no-recursion --hard-dereference --ignore-failed-read --no-unquote --null -T - || [ $? = 1 ]
