package broker

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// sockaddr is what a program would hand to connect.
func sockaddr(t *testing.T, a string, v6 bool) []byte {
	t.Helper()
	ap, err := netip.ParseAddrPort(a)
	if err != nil {
		t.Fatal(err)
	}
	family, raw := uint16(unix.AF_INET), ap.Addr().AsSlice()
	if v6 {
		sixteen := ap.Addr().As16()
		family, raw = unix.AF_INET6, append(make([]byte, 4), sixteen[:]...) // behind the flow
		raw = append(raw, 0, 0, 0, 0)
	}
	b := binary.NativeEndian.AppendUint16(nil, family)
	return append(binary.BigEndian.AppendUint16(b, ap.Port()), raw...)
}

// An address has one spelling and one decision, whatever form the program gives it.
func TestRT56_OneSpellingOfAnAddress(t *testing.T) {
	for _, c := range []struct {
		address  string
		v6       bool
		want     string
		loopback bool
	}{
		{"127.0.0.1:80", false, "inet 127.0.0.1:80", true},
		{"127.0.0.1:80", true, "inet 127.0.0.1:80", true}, // ::ffff:127.0.0.1
		{"127.1.2.3:80", true, "inet 127.1.2.3:80", true},
		{"0.0.0.0:80", true, "inet 0.0.0.0:80", true},
		{"[::1]:80", true, "inet6 [::1]:80", true},
		{"[::]:80", true, "inet6 [::]:80", true},
		{"192.0.2.1:443", false, "inet 192.0.2.1:443", false},
		{"192.0.2.1:443", true, "inet 192.0.2.1:443", false},
		{"192.0.2.1:444", true, "inet 192.0.2.1:444", false}, // another port is another address
		{"[2001:db8:0:0::1]:443", true, "inet6 [2001:db8::1]:443", false},
		{"[::127.0.0.1]:80", true, "inet6 [::7f00:1]:80", false}, // compatible is not mapped
		{"[64:ff9b::7f00:1]:80", true, "inet6 [64:ff9b::7f00:1]:80", false},
	} {
		got := parseAddress(sockaddr(t, c.address, c.v6))
		if got.text != c.want || got.loopback != c.loopback || !got.inet || got.path != "" {
			t.Errorf("%s (as IPv6: %v): got %+v, want %s, loopback %v", c.address, c.v6, got, c.want, c.loopback)
		}
	}
	for _, short := range [][]byte{nil, {2}, {2, 0, 0, 80}, sockaddr(t, "192.0.2.1:1", true)[:20]} {
		if got := parseAddress(short); got.inet || got.path != "" {
			t.Errorf("%v: got %+v, want no address", short, got)
		}
	}
}
