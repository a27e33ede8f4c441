package receipt

// PAE for the comparison with go-securesystemslib.
var PAE = pae
