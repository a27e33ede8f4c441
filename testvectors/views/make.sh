#!/bin/sh
# Makes the vectors of internal/views with the common tools, which share no code
# with it: gzip, xz, zstd, zip, tar, git, bzip2, base64, base32, xxd, hexdump, od,
# jq, openssl, sed.
# Each line of index.txt: file, whether some view holds plain.txt (yes, no,
# part: its first 200 bytes), the bounds that must be reported (names joined by
# "+", or none), and whether bytes are opaque.
set -eu
cd "$(dirname "$0")"
t=$(mktemp -d)
trap 'rm -rf "$t"' EXIT
find . -name '*.bin' -delete
: >index.txt
add() { # file plain bounds opaque
	printf '%s %s %s %s\n' "$1" "$2" "$3" "$4" >>index.txt
}

awk 'BEGIN { s = 42; for (l = 0; l < 90; l++) { o = ""; for (w = 0; w < 7; w++) { for (c = 0; c < 3 + s % 6; c++) {
	s = (s * 1103 + 12345) % 65521; o = o sprintf("%c", 97 + int(s / 7) % 26) } o = o " " } print o } }' >plain.txt
head -c $(($(wc -c <plain.txt) / 4 * 4)) plain.txt >"$t/even"
awk 'BEGIN { for (i = 0; i < 900; i++) print "line", i, "of nothing much" }' >"$t/other"

gzip -9nc plain.txt >gzip.bin; add gzip.bin yes none no
cat gzip.bin gzip.bin >gzip-members.bin; add gzip-members.bin yes none no
xz -6c plain.txt >xz.bin; add xz.bin yes none no
xz -6c --block-size=2000 plain.txt >xz-blocks.bin; add xz-blocks.bin yes none no
xz -6c -C sha256 plain.txt >xz-sha256.bin; add xz-sha256.bin yes none no
xz -6c --x86 --lzma2 plain.txt >xz-filter.bin; add xz-filter.bin no view yes
zstd -q -19 -c plain.txt >zstd.bin; add zstd.bin yes none no
bzip2 -9c plain.txt >bzip2-unread.bin; add bzip2-unread.bin no none yes
cp plain.txt "$t/plain.txt"
(cd "$t" && zip -q -X -9 a.zip other plain.txt && zip -q -X -0 b.zip plain.txt && zip -q -X -P secret c.zip plain.txt)
cp "$t/a.zip" zip.bin; add zip.bin yes none no
cp "$t/b.zip" zip-stored.bin; add zip-stored.bin yes none no
cp "$t/c.zip" zip-encrypted.bin; add zip-encrypted.bin no view yes
{ printf '#!/bin/sh\nexec unzip -p "$0"\n'; cat "$t/a.zip"; } >zip-self-extracting.bin; add zip-self-extracting.bin yes none no
for f in v7 ustar gnu pax; do
	tar -C "$t" --format=$f --mtime=@0 --owner=0 --group=0 -cf tar-$f.bin other plain.txt; add tar-$f.bin yes none no
done
git init -q "$t/repo"
id=$(git -C "$t/repo" hash-object -w --stdin <plain.txt)
cp "$t/repo/.git/objects/$(echo "$id" | cut -c1-2)/$(echo "$id" | cut -c3-)" git-object.bin; add git-object.bin yes none no
base64 plain.txt >base64.bin; add base64.bin yes none no
base64 -w0 plain.txt >base64-line.bin; add base64-line.bin yes none no
base64 -w0 plain.txt | tr '+/' '-_' | tr -d '=' >base64-url.bin; add base64-url.bin yes none no
{ echo '-----BEGIN DATA-----'; base64 -w64 plain.txt; echo '-----END DATA-----'; } >base64-pem.bin; add base64-pem.bin yes none no
xxd -p plain.txt >hex.bin; add hex.bin yes none no
xxd -p plain.txt | tr -d '\n' | tr a-f A-F >hex-upper.bin; add hex-upper.bin yes none no
jq -Rs '{content: .}' plain.txt >json.bin; add json.bin yes none no
jq -Rs '{content: .} | tojson' plain.txt >json-twice.bin; add json-twice.bin yes none no
jq -Rrs '@uri' plain.txt >percent.bin; add percent.bin yes none no

# Numbers, by the programs that print them.
xxd plain.txt >xxd.bin; add xxd.bin yes none no
xxd -g1 -u -c24 plain.txt >xxd-bytes.bin; add xxd-bytes.bin yes none no
xxd -i plain.txt >xxd-c.bin; add xxd-c.bin yes none no
xxd gzip.bin >xxd-gzip.bin; add xxd-gzip.bin yes none no
hexdump -C plain.txt >hexdump-canonical.bin; add hexdump-canonical.bin yes none no
hexdump plain.txt >hexdump-words.bin; add hexdump-words.bin yes none no
hexdump -b plain.txt >hexdump-octal.bin; add hexdump-octal.bin yes none no
od plain.txt >od.bin; add od.bin yes none no
od -t x1 plain.txt >od-hex.bin; add od-hex.bin yes none no
od -A x -t x1z plain.txt >od-text.bin; add od-text.bin yes none no
od -A n -t x1 plain.txt >od-bare.bin; add od-bare.bin yes none no
od -t u1 plain.txt >od-decimal.bin; add od-decimal.bin yes none no
od -b plain.txt >od-octal.bin; add od-octal.bin yes none no
xxd -p plain.txt | tr -d '\n' | sed 's/../&:/g' >hex-colons.bin; add hex-colons.bin yes none no
xxd -p plain.txt | tr -d '\n' | sed 's/../\\x&/g' >hex-escapes.bin; add hex-escapes.bin yes none no
jq -Rsc 'explode' plain.txt >decimal.bin; add decimal.bin yes none no
od -v -A n -t o1 plain.txt | tr -d '\n' | sed 's/ /\\/g' >octal-escapes.bin; add octal-escapes.bin yes none no
jq -Rrs '[explode[] | "&#\(.);"] | join("")' plain.txt >html.bin; add html.bin yes none no
xxd -p plain.txt | tr -d '\n' | sed 's/../\&#x&;/g' >html-hex.bin; add html-hex.bin yes none no
base32 plain.txt >base32.bin; add base32.bin yes none no
base32 -w0 gzip.bin >base32-gzip.bin; add base32-gzip.bin yes none no
base64 -w0 plain.txt | sed 's/..../& /g' >base64-blanks.bin; add base64-blanks.bin yes none no
base64 -w0 gzip.bin | sed 's/.\{5\}/& /g' | fold -w 72 >base64-blanks-gzip.bin; add base64-blanks-gzip.bin yes none no
base64 -w8 plain.txt >base64-narrow.bin; add base64-narrow.bin yes none no
basenc --z85 "$t/even" >z85-unread.bin; add z85-unread.bin no none no

# gzip in tar in base64 is three levels deep, the next is too deep.
cp gzip.bin "$t/inner.gz"
tar -C "$t" --format=gnu --mtime=@0 --owner=0 --group=0 -cf "$t/three.tar" inner.gz
base64 "$t/three.tar" >deep-3.bin; add deep-3.bin yes none no
gzip -9nc deep-3.bin >deep-4.bin; add deep-4.bin no depth yes

# Cut and changed: what came before is still read.
cat "$t/other" "$t/other" plain.txt >"$t/long"
cat plain.txt "$t/other" >"$t/front"
cut() { head -c $(($(wc -c <"$1") * 3 / 4)) "$1" >"$2"; }
gzip -9nc "$t/front" >"$t/f.gz"; cut "$t/f.gz" gzip-cut.bin; add gzip-cut.bin yes view no
xz -6c --block-size=1000 "$t/front" >"$t/f.xz"; cut "$t/f.xz" xz-cut.bin; add xz-cut.bin yes view no
cut gzip.bin "$t/g"; { cat "$t/g"; printf 'XXXXXXXX'; tail -c +$(($(wc -c <"$t/g") + 9)) gzip.bin; } >gzip-changed.bin; add gzip-changed.bin part view no
head -c -4 gzip.bin >"$t/g"; { cat "$t/g"; printf '\001\002\003\004'; } >gzip-length.bin; add gzip-length.bin yes view no
tar -C "$t" --format=gnu --mtime=@0 --owner=0 --group=0 -cf "$t/c.tar" plain.txt other
cut "$t/c.tar" tar-cut.bin; add tar-cut.bin yes view no
head -c 1500 zip-stored.bin >zip-cut.bin; add zip-cut.bin part view no

# Bombs.
head -c 70000000 /dev/zero | xz -6c >xz-bomb.bin; add xz-bomb.bin no ratio no
head -c 70000000 /dev/zero | zstd -q -19 -c >zstd-bomb.bin; add zstd-bomb.bin no ratio no
head -c 70000000 /dev/zero | gzip -9nc | gzip -9nc >gzip-bomb-twice.bin; add gzip-bomb-twice.bin no ratio no

openssl enc -aes-128-ctr -K 00112233445566778899aabbccddeeff -iv 00 -in plain.txt 2>/dev/null >encrypted.bin; add encrypted.bin no none yes
