package scope

// Result of an operation, as far as scope is concerned.
type Result uint8

const (
	Succeeded Result = iota
	Denied           // EPERM, EACCES, EXDEV, EROFS: the object is there and was kept from the run
	Absent           // ENOENT, ENOTDIR, ENAMETOOLONG, ELOOP
	Failed           // any other errno: nothing was used
)

// Numbers of Linux (asm-generic/errno-base.h, errno.h; the same on every
// architecture that cleanrun records on), written out because a verifier runs
// elsewhere.
const (
	ePERM        = 1
	eNOENT       = 2
	eACCES       = 13
	eXDEV        = 18
	eNOTDIR      = 20
	eROFS        = 30
	eNAMETOOLONG = 36
	eLOOP        = 40
)

// ResultOf returns the result that an errno stands for; 0 is success.
func ResultOf(errno int32) Result {
	switch errno {
	case 0:
		return Succeeded
	case ePERM, eACCES, eXDEV, eROFS:
		return Denied
	case eNOENT, eNOTDIR, eNAMETOOLONG, eLOOP:
		return Absent
	}
	return Failed
}

// Judge tells whether one use of a path was out of scope. need is None for an
// open with O_PATH, which gives neither content nor change. hidden says that the
// path looked absent only because the sandbox hides it.
//
// A failed write inside a readable root changed nothing and is in scope; so is
// a miss on a path that is truly absent, because honest programs probe.
func Judge(need, have Access, result Result, hidden bool) bool {
	if need == None {
		return false
	}
	switch result {
	case Succeeded:
		return need > have
	case Denied:
		return have == None
	case Absent:
		return have == None && hidden
	}
	return false
}
