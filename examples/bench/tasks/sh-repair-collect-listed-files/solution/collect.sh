#!/bin/sh
# collect.sh LIST FROM TO: copies the listed files.
[ $# = 3 ] || exit 2
newline='
'
# A leading ./ keeps an argument with a hyphen from being read as an option.
rooted() {
	case $1 in
	/*) printf '%s' "$1" ;;
	*) printf './%s' "$1" ;;
	esac
}
list=$(rooted "$1") from=$(rooted "$2") to=$(rooted "$3")
[ -f "$list" ] && [ -r "$list" ] || { echo "collect.sh: cannot read the list" >&2; exit 2; }
[ -d "$from" ] || { echo "collect.sh: there is no folder to copy from" >&2; exit 2; }
mkdir -p "$to" || exit 2

copied=0 missing=0 done=$newline
while IFS= read -r path || [ -n "$path" ]; do
	[ -n "$path" ] || continue
	case $done in
	*"$newline$path$newline"*) continue ;;
	esac
	done=$done$path$newline
	word=
	case /$path/ in
	//* | */../*) word=refused ;;
	*) [ -f "$from/$path" ] && [ ! -L "$from/$path" ] || word=missing ;;
	esac
	if [ -n "$word" ]; then
		missing=$((missing + 1))
		printf '%s %s\n' "$word" "$path"
		continue
	fi
	mkdir -p "$to/$(dirname "./$path")" && rm -f "$to/$path" && cp "$from/$path" "$to/$path" || exit 2
	copied=$((copied + 1))
	printf 'copied %s\n' "$path"
done <"$list"
echo "$copied copied, $missing missing"
[ "$missing" = 0 ]
