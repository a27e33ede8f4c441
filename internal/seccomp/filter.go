package seccomp

import (
	"sort"
	"syscall"
)

// An Insn is one classic BPF instruction, laid out as struct sock_filter.
type Insn struct {
	Code   uint16
	Jt, Jf uint8
	K      uint32
}

// Codes of linux/bpf_common.h that the filter uses.
const (
	ldAbs = 0x20 // BPF_LD|BPF_W|BPF_ABS
	jeq   = 0x15 // BPF_JMP|BPF_JEQ|BPF_K
	jge   = 0x35 // BPF_JMP|BPF_JGE|BPF_K
	jset  = 0x45 // BPF_JMP|BPF_JSET|BPF_K
	ret   = 0x06 // BPF_RET|BPF_K
)

// Return values of linux/seccomp.h.
const (
	retKill   = 0x80000000 // SECCOMP_RET_KILL_PROCESS
	retErrno  = 0x00050000 // SECCOMP_RET_ERRNO, errno in the low 16 bits
	retNotify = 0x7fc00000 // SECCOMP_RET_USER_NOTIF
	retAllow  = 0x7fff0000 // SECCOMP_RET_ALLOW
)

// Offsets in struct seccomp_data. Both architectures are little-endian: the low
// half of an argument comes first.
const (
	offNr   = 0
	offArch = 4
	offArgs = 16
)

// maxInsns is the kernel's limit, BPF_MAXINSNS.
const maxInsns = 4096

func (v Verdict) insn() Insn {
	switch v.Class {
	case Allow:
		return Insn{ret, 0, 0, retAllow}
	case Notify, Refuse:
		return Insn{ret, 0, 0, retNotify}
	case Quiet:
		return Insn{ret, 0, 0, retErrno | uint32(v.Errno)}
	}
	return Insn{ret, 0, 0, retKill}
}

// Filter assembles the policy. The order is: architecture, x32, notified calls,
// calls with rules on registers, allowed calls; the rest falls through. The
// kernel caches numbers that are always allowed in a bitmap, so the length of the
// last list costs nothing.
func (a *Arch) Filter() []Insn {
	p := []Insn{
		{ldAbs, 0, 0, offArch},
		{jeq, 1, 0, a.audit},
		{ret, 0, 0, retKill},
		{ldAbs, 0, 0, offNr},
	}
	if a.x32 {
		p = append(p, Insn{jge, 0, 1, x32Bit}, Insn{ret, 0, 0, retKill})
	}
	ruled := map[int32]bool{}
	for _, r := range a.argRules {
		if nr, ok := a.number[r.name]; ok {
			ruled[nr] = true
		}
	}
	plain := func(c Class) {
		for _, nr := range a.sorted() {
			if v := a.base[nr]; v.Class == c && !ruled[nr] {
				p = append(p, Insn{jeq, 0, 1, uint32(nr)}, v.insn())
			}
		}
	}
	plain(Notify)
	for _, nr := range a.sorted() {
		if ruled[nr] {
			body := a.ruled(nr)
			p = append(p, Insn{jeq, 0, uint8(len(body)), uint32(nr)})
			p = append(p, body...)
		}
	}
	plain(Quiet)
	plain(Allow)
	return append(p, Verdict{Refuse, syscall.ENOSYS}.insn())
}

// ruled is the part of the filter for one call with argument rules. It always
// returns, so it may clobber the accumulator.
func (a *Arch) ruled(nr int32) []Insn {
	var p []Insn
	for _, r := range a.argRules {
		if n, ok := a.number[r.name]; !ok || n != nr {
			continue
		}
		p = append(p, Insn{ldAbs, 0, 0, offArgs + 8*uint32(r.arg)})
		code := uint16(jeq)
		if r.anyBit {
			code = jset
		}
		for _, v := range r.values {
			p = append(p, Insn{code, 0, 1, v}, r.verdict.insn())
		}
	}
	return append(p, a.base[nr].insn())
}

func (a *Arch) sorted() []int32 {
	nrs := make([]int32, 0, len(a.base))
	for nr := range a.base {
		nrs = append(nrs, nr)
	}
	sort.Slice(nrs, func(i, j int) bool { return nrs[i] < nrs[j] })
	return nrs
}
