package seccomp

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/net/bpf"
)

var arches = []*Arch{amd64(), arm64()}

// sysDir is the folder of golang.org/x/sys/unix, whose generated tables are the
// oracle for ours.
func sysDir(t *testing.T) string {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/sys").Output()
	if err != nil || len(out) == 0 {
		t.Skipf("no source of golang.org/x/sys to compare with: %v", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "unix")
}

func TestTablesEqualXSys(t *testing.T) {
	dir := sysDir(t)
	line := regexp.MustCompile(`(?m)^\s*SYS_(\w+)\s+= (\d+)$`)
	for _, a := range arches {
		src, err := os.ReadFile(filepath.Join(dir, "zsysnum_linux_"+a.Name+".go"))
		if err != nil {
			t.Fatal(err)
		}
		seen := 0
		for _, m := range line.FindAllStringSubmatch(string(src), -1) {
			name := strings.ToLower(m[1])
			nr, err := strconv.Atoi(m[2])
			if err != nil {
				t.Fatal(err)
			}
			if name == "arch_specific_syscall" { // a range's start, no call
				continue
			}
			seen++
			if got := a.Call(int32(nr)); got != name {
				t.Errorf("%s: number %d: got %s, want %s", a.Name, nr, got, name)
			}
			if got, ok := a.Number(name); !ok || int(got) != nr {
				t.Errorf("%s: %s: got %d, %v, want %d", a.Name, name, got, ok, nr)
			}
		}
		if seen < 300 || seen != len(a.names) {
			t.Errorf("%s: %d calls in golang.org/x/sys, %d in the table", a.Name, seen, len(a.names))
		}
	}
}

func TestPolicyNames(t *testing.T) {
	seen := map[string]string{}
	check := func(list, names string) {
		for _, n := range strings.Fields(names) {
			if other, dup := seen[n]; dup {
				t.Errorf("%s is in two lists: %s and %s", n, other, list)
			}
			seen[n] = list
			_, amd := arches[0].Number(n)
			_, arm := arches[1].Number(n)
			if !amd && !arm {
				t.Errorf("%s list: no architecture has a call %q", list, n)
			}
		}
	}
	check("notify", notify)
	check("allow", allow)
	check("quiet", quiet)
	for _, r := range refused {
		check(r.errno.Error(), r.names)
	}
	for _, r := range argRules {
		if seen[r.name] == "" {
			t.Errorf("rule on the arguments of %s, which is in no list", r.name)
		}
	}
}

// simulate executes the assembled filter with the x/net interpreter. It loads words
// in network order, so the packet is seccomp_data with each 32-bit word swapped.
func simulate(t *testing.T, vm *bpf.VM, nr, arch uint32, args [6]uint64) uint32 {
	b := make([]byte, 64)
	binary.BigEndian.PutUint32(b[0:], nr)
	binary.BigEndian.PutUint32(b[4:], arch)
	for i, a := range args {
		binary.BigEndian.PutUint32(b[16+8*i:], uint32(a))
		binary.BigEndian.PutUint32(b[20+8*i:], uint32(a>>32))
	}
	n, err := vm.Run(b)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(n)
}

func machine(t *testing.T, a *Arch) *bpf.VM {
	var prog []bpf.Instruction
	f := a.Filter()
	if len(f) > maxInsns {
		t.Fatalf("%s: %d instructions, want at most %d", a.Name, len(f), maxInsns)
	}
	for _, i := range f {
		prog = append(prog, bpf.RawInstruction{Op: i.Code, Jt: i.Jt, Jf: i.Jf, K: i.K}.Disassemble())
	}
	vm, err := bpf.NewVM(prog)
	if err != nil {
		t.Fatal(err)
	}
	return vm
}

func action(v Verdict) uint32 {
	switch v.Class {
	case Allow:
		return retAllow
	case Notify, Refuse:
		return retNotify
	case Quiet:
		return retErrno | uint32(v.Errno)
	}
	return retKill
}

// Every number, with register values around all that a rule names, gets from the
// assembled program what Decide says.
func TestFilterEqualsDecide(t *testing.T) {
	values := []uint64{0, 1, 17, 0xffffffff, 1 << 32, 0xdeadbeef_00000000}
	for _, r := range append(slices.Clone(plainChanges.rules), argRules...) {
		for _, v := range r.values {
			for _, w := range []uint64{uint64(v), uint64(v) + 1, uint64(v) - 1, uint64(v) | 0xabcd<<32} {
				values = append(values, w)
			}
		}
	}
	for _, a := range append(slices.Clone(arches), plainAMD64(), plainARM64()) {
		vm := machine(t, a)
		for nr := uint32(0); nr < 1024; nr++ {
			for _, v := range values {
				args := [6]uint64{v, v, v, v, v, v}
				want := action(a.Decide(int32(nr), args))
				if got := simulate(t, vm, nr, a.audit, args); got != want {
					t.Fatalf("%s: %s(%#x): filter %#x, Decide %#x", a.Name, a.Call(int32(nr)), v, got, want)
				}
			}
		}
		for _, nr := range []uint32{0x40000000, 0x40000002, 0x7fffffff, 0x80000000, 0xffffffff} {
			want := action(a.Decide(int32(nr), [6]uint64{}))
			if got := simulate(t, vm, nr, a.audit, [6]uint64{}); got != want {
				t.Errorf("%s: number %#x: filter %#x, Decide %#x", a.Name, nr, got, want)
			}
		}
	}
}

// Written by hand, independent of the lists.
func TestDecideKnownCalls(t *testing.T) {
	amd := arches[0]
	vm := machine(t, amd)
	for _, c := range []struct {
		name  string
		args  [6]uint64
		class Class
		errno syscall.Errno
	}{
		{"read", [6]uint64{}, Allow, 0},
		{"openat", [6]uint64{}, Notify, 0},
		{"open", [6]uint64{}, Notify, 0},
		{"openat2", [6]uint64{}, Notify, 0},
		{"execveat", [6]uint64{}, Notify, 0},
		{"fchmod", [6]uint64{}, Notify, 0},
		{"fsetxattr", [6]uint64{}, Notify, 0},
		{"renameat2", [6]uint64{}, Notify, 0},
		{"fchmodat2", [6]uint64{}, Notify, 0},
		{"clone3", [6]uint64{}, Quiet, syscall.ENOSYS},
		{"io_uring_setup", [6]uint64{}, Refuse, syscall.ENOSYS},
		{"io_uring_enter", [6]uint64{}, Refuse, syscall.ENOSYS},
		{"io_uring_register", [6]uint64{}, Refuse, syscall.ENOSYS},
		{"memfd_secret", [6]uint64{}, Refuse, syscall.ENOSYS},
		{"setxattrat", [6]uint64{}, Refuse, syscall.ENOSYS},
		{"file_setattr", [6]uint64{}, Refuse, syscall.ENOSYS},
		{"open_by_handle_at", [6]uint64{}, Refuse, syscall.EPERM},
		{"name_to_handle_at", [6]uint64{}, Refuse, syscall.EOPNOTSUPP},
		{"ptrace", [6]uint64{}, Refuse, syscall.EPERM},
		{"process_vm_readv", [6]uint64{}, Refuse, syscall.EPERM},
		{"pidfd_getfd", [6]uint64{}, Refuse, syscall.EPERM},
		{"mount", [6]uint64{}, Refuse, syscall.EPERM},
		{"setns", [6]uint64{}, Refuse, syscall.EPERM},
		{"unshare", [6]uint64{}, Refuse, syscall.EPERM},
		{"chroot", [6]uint64{}, Refuse, syscall.EPERM},
		{"bpf", [6]uint64{}, Refuse, syscall.EPERM},
		{"userfaultfd", [6]uint64{}, Refuse, syscall.EPERM},
		{"perf_event_open", [6]uint64{}, Refuse, syscall.EACCES},
		{"remap_file_pages", [6]uint64{}, Refuse, syscall.ENOSYS},
		{"clone", [6]uint64{0x3d0f00}, Allow, 0}, // pthread_create
		{"clone", [6]uint64{0x4111}, Allow, 0},   // vfork by Go
		{"clone", [6]uint64{0x10000011}, Refuse, syscall.EPERM},
		{"clone", [6]uint64{0x00020011}, Refuse, syscall.EPERM},
		{"clone", [6]uint64{0x00800011}, Refuse, syscall.EPERM}, // CLONE_UNTRACED
		{"ioctl", [6]uint64{0, 0x5401}, Allow, 0},               // TCGETS
		{"ioctl", [6]uint64{0, 0x5412}, Refuse, syscall.EPERM},
		{"ioctl", [6]uint64{0, 0x1_0000_5412}, Refuse, syscall.EPERM}, // the kernel cuts the command to 32 bits
		{"ioctl", [6]uint64{0, 0x541c}, Refuse, syscall.EPERM},
		{"ioctl", [6]uint64{0, 0x40086602}, Notify, 0},
		{"ioctl", [6]uint64{0, 0x401c5820}, Notify, 0},
		{"prctl", [6]uint64{15}, Allow, 0},
		{"prctl", [6]uint64{35}, Refuse, syscall.EPERM},
		{"socket", [6]uint64{1}, Allow, 0},
		{"socket", [6]uint64{2}, Allow, 0},
		{"socket", [6]uint64{10}, Allow, 0},
		{"socket", [6]uint64{16}, Allow, 0},
		{"socket", [6]uint64{17}, Refuse, syscall.EAFNOSUPPORT},
		{"socket", [6]uint64{38}, Refuse, syscall.EAFNOSUPPORT},
		{"socket", [6]uint64{40}, Refuse, syscall.EAFNOSUPPORT},
		{"personality", [6]uint64{0xffffffff}, Allow, 0},
		{"personality", [6]uint64{0x0040000}, Allow, 0},
		{"personality", [6]uint64{0x0400000}, Refuse, syscall.EPERM}, // READ_IMPLIES_EXEC
	} {
		nr, ok := amd.Number(c.name)
		if !ok {
			t.Errorf("no call %s", c.name)
			continue
		}
		v := amd.Decide(nr, c.args)
		if v.Class != c.class || v.Errno != c.errno {
			t.Errorf("%s(%#x, %#x): got %v %v, want %v %v", c.name, c.args[0], c.args[1], v.Class, v.Errno, c.class, c.errno)
		}
		if got := simulate(t, vm, uint32(nr), amd.audit, c.args); got != action(Verdict{c.class, c.errno}) {
			t.Errorf("%s: filter returns %#x", c.name, got)
		}
	}
	if v := amd.Decide(999, [6]uint64{}); v.Class != Refuse || v.Errno != syscall.ENOSYS {
		t.Errorf("unknown number: got %v %v, want refuse ENOSYS", v.Class, v.Errno)
	}
}

func TestForeignArchitectureIsKilled(t *testing.T) {
	for _, a := range arches {
		vm := machine(t, a)
		for _, arch := range []uint32{0, 0x40000003, 0x40000028, a.audit ^ 1} { // i386, 32-bit arm
			for _, nr := range []uint32{0, 1, 5, 11, 295} {
				if got := simulate(t, vm, nr, arch, [6]uint64{}); got != retKill {
					t.Errorf("%s: arch %#x number %d: got %#x, want kill", a.Name, arch, nr, got)
				}
			}
		}
		// Positive control: the same number under the right architecture lives.
		if got := simulate(t, vm, 0, a.audit, [6]uint64{}); got == retKill {
			t.Errorf("%s: number 0 of the own architecture is killed", a.Name)
		}
	}
	if got := simulate(t, machine(t, arches[0]), x32Bit|2, arches[0].audit, [6]uint64{}); got != retKill {
		t.Errorf("x32 open: got %#x, want kill", got)
	}
}
