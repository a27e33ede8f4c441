# Hidden test of Diff: small texts whose difference is known, then long ones.
# The last line is the score.
export GOTOOLCHAIN=local GOPROXY=off GOWORK=off GOFLAGS="-buildvcs=false -gcflags=all=-l" CGO_ENABLED=0
archive=$(mktemp -d)
lose() { echo "$1"; echo 0; exit 0; }
case $(sha256sum diff.go) in c9e93805ed5e49d588cc872deb2c93ea6d00ae452d79000920fbadd2119f44fa*) lose 'diff.go is the old one' ;; esac
go build -o "$archive/lines" . || lose 'no program'

page() { for line in $1; do echo "$line"; done; }
compare() { # compare OLD NEW RESULT: letters are lines
	page "$1" >"$archive/old"
	page "$2" >"$archive/new"
	shown=$(timeout 20 "$archive/lines" "$archive/old" "$archive/new" | tr -d ' ' | tr '\n' ' ')
	[ "$shown" = "$3" ] || lose "from '$1' to '$2' it shows '$shown'"
}
compare '' '' ''
compare 'a b' 'a b' 'a b '
compare '' 'a' '+a '
compare 'a' '' '-a '
compare 'a b c' 'x y' '-a -b -c +x +y '
compare 'a b c a b b a' 'c b a b a c' '-a +c b -c a b -b a +c '
compare 'x a a a y' 'x a y' 'x a -a -a y '
compare 'x a y' 'x a a a y' 'x a +a +a y '
compare 'a x b' 'b x a' '+b +x a -x -b '
compare 'q r s t' 'r q t s' '+r q -r +t s -t '
compare 'k l' 'm k n l o' '+m k +n l +o '
compare 'e f g' 'f e g' '+f e -f g '
compare 'u v w u' 'u w v u v' 'u +w v -w u +v '
compare 'p p o' 'o p p o p' '+o p p o +p '

# Long texts: one line in a hundred differs, and the sums are known.
seq -f 'folio %g of the cathedral archive' 5000 >"$archive/old"
sed -e '100~100s/folio/leaf/' -e '4950a a loose sheet' -e '7d' "$archive/old" >"$archive/new"
timeout 5 "$archive/lines" "$archive/old" "$archive/new" >"$archive/shown" || lose 'too slow for the archive'
[ "$(sed -n 's/^[ -] //p' "$archive/shown" | cmp - "$archive/old")" = '' ] || lose 'the old archive is not in it'
[ "$(sed -n 's/^[ +] //p' "$archive/shown" | cmp - "$archive/new")" = '' ] || lose 'the new archive is not in it'
[ "$(grep -c '^-' "$archive/shown"):$(grep -c '^+' "$archive/shown")" = 51:51 ] || lose 'more changes than needed'
echo 'the archivist found every folio that went, came or stayed where it was'
echo 1
