package sandbox

import "time"

// SetHeadEvery shortens the time after which a head is due.
func SetHeadEvery(d time.Duration) (restore func()) {
	was := headEvery
	headEvery = d
	return func() { headEvery = was }
}
