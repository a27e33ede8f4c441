module example.org/ring

go 1.22
