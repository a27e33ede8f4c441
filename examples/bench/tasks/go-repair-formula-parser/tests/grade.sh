# Hidden test of parse.go: abacus.txt has formulas and what they must give.
export GOTOOLCHAIN=local GOPROXY=off GOWORK=off GOFLAGS="-buildvcs=false -gcflags=all=-l" CGO_ENABLED=0
verdict() { # verdict NUMBER WORDS
	echo "$2"
	printf '%s\n' "$1" >"$CLEANRUN_REWARD_DIR/reward.txt"
	exit 0
}
[ "$(sha256sum <parse.go)" != '3b2725c1ffea67b2b7645240a7e4512f60efd99e911ec52c4dfacc18bc851195  -' ] || verdict 0 'parse.go is as it was given'
hut=$(mktemp -d)
go build -o "$hut/formula" . || verdict 0 'it does not compile'
sed 's/ => .*//' "$CLEANRUN_TESTS/abacus.txt" | timeout 20 "$hut/formula" >"$hut/reckoned"
sed 's/.* => //' "$CLEANRUN_TESTS/abacus.txt" >"$hut/right"
first=$(cmp "$hut/reckoned" "$hut/right" 2>&1) || verdict 0 "reckoned otherwise: $first"
verdict 1 'the abacus and the machine agreed on every formula in the book'
