package verify

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/cleanrun-dev/cleanrun/attest"
)

// Every value in a statement has a field that compares it: the test walks the
// type, changes one value at a time and looks whether a comparison notices. The
// score is compared with itself by design (see restFields), so a change of it
// shows here too.
func TestEveryFieldIsCompared(t *testing.T) {
	all := append(append(append([]field{}, subjectFields...), verdictFields...), restFields...)
	leaves := 0
	var walk func(path string, at func(*attest.Statement) reflect.Value, typ reflect.Type)
	walk = func(path string, at func(*attest.Statement) reflect.Value, typ reflect.Type) {
		switch typ.Kind() {
		case reflect.Struct:
			for i := range typ.NumField() {
				walk(path+"."+typ.Field(i).Name, func(s *attest.Statement) reflect.Value { return at(s).Field(i) }, typ.Field(i).Type)
			}
			return
		case reflect.Pointer:
			walk(path, func(s *attest.Statement) reflect.Value { return at(s).Elem() }, typ.Elem())
			return
		case reflect.Slice:
			walk(path+"[0]", func(s *attest.Statement) reflect.Value { return at(s).Index(0) }, typ.Elem())
		}
		leaves++
		a, b := full(), full()
		if err := compare(all, a, b); err != nil {
			t.Fatalf("control: %v", err)
		}
		change(t, path, at(b))
		if compare(all, a, b) == nil {
			t.Errorf("nothing compares %s", path)
		}
	}
	walk("Statement", func(s *attest.Statement) reflect.Value { return reflect.ValueOf(s).Elem() }, reflect.TypeFor[attest.Statement]())
	if leaves < 60 {
		t.Errorf("got %d values, want at least 60", leaves)
	}
}

// full is a statement whose lists have one element each.
func full() *attest.Statement {
	s := new(attest.Statement)
	fill(reflect.ValueOf(s).Elem())
	return s
}

func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	}
}

func change(t *testing.T, path string, v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(v.Uint() + 1)
	case reflect.Slice:
		v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
	default:
		t.Fatalf("%s: no way to change a %s", path, v.Kind())
	}
}

func TestShowIsShort(t *testing.T) {
	if n := len(show(fmt.Sprintf("%0500d", 1))); n > 210 {
		t.Errorf("got %d bytes", n)
	}
}
