# Hidden test of ring.go: storm.txt holds commands and, behind a bar, answers.
export GOTOOLCHAIN=local GOPROXY=off GOWORK=off GOFLAGS="-buildvcs=false -gcflags=all=-l" CGO_ENABLED=0
given=4e978a5a89844110d03496f68bb387de26dcfaac60156254665736ab38bdc8c7
case $(sha256sum ring.go) in
"$given "*)
	echo 'the ring is as it was given: it loses readings without counting them'
	exit 1
	;;
esac
room=$(mktemp -d)
cp ./*.go go.mod "$room" && rm -f "$room"/*_test.go
(cd "$room" && go build -o station .) || { echo 'the station does not build'; exit 1; }
sed 's/|.*//' "$CLEANRUN_TESTS/storm.txt" | timeout 20 "$room/station" >"$room/said"
sed -n 's/^[^|]*|\(..*\)/\1/p' "$CLEANRUN_TESTS/storm.txt" >"$room/should"
if [ "$(cat "$room/said")" = "$(cat "$room/should")" ]; then
	echo 'the weather station remembered the storm reading by reading'
	exit 0
fi
echo 'the weather station remembers another storm'
exit 1
