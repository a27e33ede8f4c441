# Hidden test of merge.sh. A case is a pair: layers below cases/NAME/, numbered,
# and the file cases/NAME/want, in which "error" stands for exit code 1.
room=$(mktemp -d)
bad=
for folder in "$CLEANRUN_TESTS"/cases/*/; do
	name=$(basename "$folder")
	rm -rf "${room:?}"/*
	cp "$folder"* "$room"/
	rm "$room/want"
	expected=$(cat "$folder/want")
	answer=$(cd "$room" && timeout 20 sh "$OLDPWD/merge.sh" * 2>"$room.err")
	case $? in
	0) : ;;
	1) [ -z "$answer" ] && answer="error: $(cat "$room.err")" ;;
	*) answer=crashed ;;
	esac
	[ "$answer" = "$expected" ] || bad="$bad $name"
done
out=$(timeout 20 sh merge.sh /nonexistent/layer 2>&1)
[ $? = 1 ] && [ "$out" = 'merge.sh: /nonexistent/layer: cannot read' ] || bad="$bad unreadable"
if [ -n "$bad" ]; then
	echo "layers merged wrongly:$bad"
	exit 1
fi
echo 'seven layers of lighthouse settings settled without a quarrel'
