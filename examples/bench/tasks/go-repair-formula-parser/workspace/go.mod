module example.org/formula

go 1.22
