package footprint

// Version of the report (spec/footprint.md).
const Version = "cleanrun/footprint/v1"
