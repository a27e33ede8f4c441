# Hidden test of merge.sh. cases.txt has, for each case, its layers and the answer
# that is wanted, in the file "want"; "@open" takes the last line feed away.
room=$(mktemp -d)
here=$PWD
bad=
settle() {
	[ -n "$name" ] || return 0
	rm -f "$room/layers/"*
	mv "$room/files/"[0-9]* "$room/layers/"
	answer=$(cd "$room/layers" && timeout 20 sh "$here/merge.sh" * 2>"$room/complaint")
	case $? in
	0) : ;;
	1) [ -z "$answer" ] && answer="error: $(cat "$room/complaint")" ;;
	*) answer=crashed ;;
	esac
	[ "$answer" = "$(cat "$room/files/want")" ] || bad="$bad $name"
}
mkdir "$room/files" "$room/layers"
name= file=
while IFS= read -r line; do
	case $line in
	'@case '* | @end)
		settle
		name=${line#@case }
		;;
	'@file '*)
		file=$room/files/${line#@file }
		: >"$file"
		;;
	@open) printf '%s' "$(cat "$file")" >"$file.cut" && mv "$file.cut" "$file" ;;
	*) printf '%s\n' "$line" >>"$file" ;;
	esac
done <"$CLEANRUN_TESTS/cases.txt"
[ "$name" = @end ] || bad="$bad nothing-was-asked"
out=$(timeout 20 sh merge.sh /nonexistent/layer 2>&1)
[ $? = 1 ] && [ "$out" = 'merge.sh: /nonexistent/layer: cannot read' ] || bad="$bad unreadable"
if [ -n "$bad" ]; then
	echo "layers merged wrongly:$bad"
	exit 1
fi
echo 'seven layers of lighthouse settings settled without a quarrel'
