# Hidden test of Align: crooked.md must come out as straight.md.
export GOTOOLCHAIN=local GOPROXY=off GOWORK=off GOFLAGS="-buildvcs=false -gcflags=all=-l" CGO_ENABLED=0
paper=$CLEANRUN_REWARD_DIR/reward.json
printf '{"reward": 0}\n' >"$paper"
if ! [ -f align.go ]; then
	echo 'no align.go, the menus stay crooked'
	exit 1
fi
kitchen=$(mktemp -d)
go build -o "$kitchen/tables" . || exit 1
cat "$CLEANRUN_TESTS/crooked.md" | timeout 20 "$kitchen/tables" >"$kitchen/menu"
if cmp "$kitchen/menu" "$CLEANRUN_TESTS/straight.md" && [ -z "$(printf '' | "$kitchen/tables")" ]; then
	echo 'the canteen hung up its menus and not one column leaned to the side'
	printf '{"reward": 1}\n' >"$paper"
	exit 0
fi
exit 1
