module example.org/barges

go 1.22
