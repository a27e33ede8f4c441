module example.org/tables

go 1.22
