package ingest

// Dates and times as ISO 8601 writes them, and as far as a table can hold them: years 0001 to 9999, microseconds.
// They are parsed by hand because every field of every text file passes here.

const microsPerDay = 24 * 60 * 60 * 1_000_000

// parseDate reads YYYY-MM-DD and returns days since 1970-01-01.
func parseDate(s []byte) (days int32, ok bool) {
	if len(s) != 10 || s[4] != '-' || s[7] != '-' {
		return 0, false
	}
	year, ok1 := digits(s[0:4])
	month, ok2 := digits(s[5:7])
	day, ok3 := digits(s[8:10])
	if !ok1 || !ok2 || !ok3 || year < 1 || month < 1 || month > 12 || day < 1 || day > daysIn(year, month) {
		return 0, false
	}
	return civilDays(year, month, day), true
}

// parseTimestamp reads a date, a T or a space, HH:MM with optional seconds and up to six decimals, and an optional zone
// (Z, ±HH, ±HH:MM or ±HHMM). It returns microseconds since 1970-01-01: in UTC if zoned, else of the wall clock. More
// than six decimals would be lost, so such text is no timestamp.
func parseTimestamp(s []byte) (micros int64, zoned, ok bool) {
	if len(s) < 16 || (s[10] != 'T' && s[10] != ' ') {
		return 0, false, false
	}
	days, ok := parseDate(s[:10])
	if !ok {
		return 0, false, false
	}
	hour, ok1 := digits(s[11:13])
	minute, ok2 := digits(s[14:16])
	if !ok1 || !ok2 || s[13] != ':' || hour > 23 || minute > 59 {
		return 0, false, false
	}
	rest := s[16:]
	var second, fraction int64
	if len(rest) > 0 && rest[0] == ':' {
		if len(rest) < 3 {
			return 0, false, false
		}
		if second, ok = digits(rest[1:3]); !ok || second > 59 {
			return 0, false, false
		}
		rest = rest[3:]
		if len(rest) > 0 && rest[0] == '.' {
			n := 1
			for n < len(rest) && rest[n] >= '0' && rest[n] <= '9' {
				n++
			}
			if n == 1 || n > 7 {
				return 0, false, false
			}
			fraction, _ = digits(rest[1:n])
			for i := n; i < 7; i++ {
				fraction *= 10
			}
			rest = rest[n:]
		}
	}
	offset, zoned, ok := parseZone(rest)
	if !ok {
		return 0, false, false
	}
	micros = int64(days)*microsPerDay + ((hour*60+minute-offset)*60+second)*1_000_000 + fraction
	return micros, zoned, true
}

// parseZone reads what follows a time and returns the offset in minutes.
func parseZone(s []byte) (minutes int64, zoned, ok bool) {
	if len(s) == 0 {
		return 0, false, true
	}
	if len(s) == 1 && s[0] == 'Z' {
		return 0, true, true
	}
	if s[0] != '+' && s[0] != '-' {
		return 0, false, false
	}
	var hourText, minuteText []byte
	switch {
	case len(s) == 3:
		hourText, minuteText = s[1:3], []byte("00")
	case len(s) == 5:
		hourText, minuteText = s[1:3], s[3:5]
	case len(s) == 6 && s[3] == ':':
		hourText, minuteText = s[1:3], s[4:6]
	default:
		return 0, false, false
	}
	hours, ok1 := digits(hourText)
	mins, ok2 := digits(minuteText)
	if !ok1 || !ok2 || hours > 18 || mins > 59 {
		return 0, false, false
	}
	minutes = hours*60 + mins
	if s[0] == '-' {
		minutes = -minutes
	}
	return minutes, true, true
}

func digits(s []byte) (n int64, ok bool) {
	for _, c := range s {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

func daysIn(year, month int64) int64 {
	switch month {
	case 4, 6, 9, 11:
		return 30
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	}
	return 31
}

// civilDays counts days since 1970-01-01 in the proleptic Gregorian calendar. Years are taken to begin in March, so
// that the leap day is the last of a year and month lengths follow (153m+2)/5; an era is 400 years, 146,097 days.
func civilDays(year, month, day int64) int32 {
	if month <= 2 {
		year--
		month += 12
	}
	era := year / 400
	yearOfEra := year % 400
	dayOfYear := (153*(month-3)+2)/5 + day - 1
	dayOfEra := yearOfEra*365 + yearOfEra/4 - yearOfEra/100 + dayOfYear
	return int32(era*146_097 + dayOfEra - 719_468)
}
