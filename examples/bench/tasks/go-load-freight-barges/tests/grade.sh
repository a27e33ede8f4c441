# Hidden test of Load: four mornings at the lock. Exit code 0 if all plans are right.
export GOTOOLCHAIN=local GOPROXY=off GOWORK=off GOFLAGS="-buildvcs=false -gcflags=all=-l" CGO_ENABLED=0
[ -f load.go ] || { echo 'there is no load.go, the barges wait'; exit 1; }
lock=$(mktemp -d)
go build -o "$lock/barges" . || exit 1
plan=$(timeout 20 "$lock/barges" <<'END'
barge Agnes 10
barge Berta 7
barge Clara 7
crate wheat food 4
crate vinegar acid 3
crate rails metal 6
crate hens live 2
crate clay stone 7
load
barge Dora 12
barge Erna 12
crate n1 food 5
crate n2 acid 5 with n3
crate n3 stone 1
crate n4 metal 7
crate n5 live 1 with n6
crate n6 live 6
crate n7 stone 1 with nobody
crate n8 stone 1 with n7
load
barge Frieda 9
barge Greta 8
barge Hanna 8
crate b stone 4
crate a stone 4
crate d stone 5 with e
crate e food 1 with f
crate f food 2
crate g acid 1 with h
crate h food 1
crate j stone 4
crate c stone 3
crate k stone 1 with k
load
barge Ida 3
barge Jutta 0
crate x stone 0
crate y live 0
crate z stone 4
load
END
)
if [ "$plan" = 'Agnes: wheat
Berta: clay
Clara: rails
left: hens vinegar
Dora: n1 n4
Erna: n5 n6
left: n2 n3 n7 n8
Frieda: c j k
Greta: d e f
Hanna: a b
left: g h
Ida: y
Jutta: x
left: z' ]; then
	echo 'the lock keeper waved all ten barges through and none of them listed'
	exit 0
fi
printf '%s\n' "$plan"
exit 1
