/*
 * The lease state machine: internal/ownership, transitions.go (the table), machine.go and keeper.go (its driver).
 *
 * One keeper wants a lease that others want too. Each of its requests is answered, refused before it was sent, or left
 * unanswered; a request that the keeper has given up on stays under way and lands at any later moment, or never. The
 * keeper may be stopped between any two steps for any time, which is also how a crash looks to the others. The rival is
 * the most general one: it takes the lease whenever it is free and loses it at any moment.
 *
 * Carries: a fenced process sends nothing more (invariant 7), and the exclusion behind "one turn per group" (6).
 *
 *   stands         while the keeper is admitted its own token stands in the store. Only one token stands at a time, so
 *                  of any number of such keepers at most one is ever admitted.
 *   assert         the keeper's own former token is never taken for a rival: that would latch a keeper failed that has no
 *                  rival
 *   can_reacquire, can_release, can_quarantine_twice   witnesses: each says that something never happens and is refuted,
 *                  so the verdicts above are about runs in which it does
 *
 * Abstracts: time is ticks, the same for keeper and store; a TTL has three and a deadline two. The pace of requests is
 * any pace. A rival may be given up on at once, which the code does only after its patience. The store counts a TTL from
 * any moment between the send of an acquisition and its landing, since etcd grants a lease before its key is put.
 *
 * Leaves out: conditional renewal (no role uses it), clocks of different rates, more than two abandoned requests under
 * way at once, more than TOKENS acquisitions.
 */
#define TTL      3
#define DEADLINE 2 /* two thirds of it, from the send */
#define TOKENS   4 /* acquisitions of the keeper; its tokens are 1 … TOKENS */
#define LATE     2 /* abandoned requests under way */
#define RIVALS   9 /* the token of every rival */

#ifdef CLAIMS_ONLY /* set for formulas, so that a refutation is the formula's own */
#define must(x) skip
#else
#define must(x) assert(x)
#endif

/* States, requests, answers: as in lease.go. */
#define NONE 0
#define HELD 1
#define QUARANTINED 2
#define REACQUIRING 3
#define RELEASED 4
#define FAILED 5

#define ACQUIRE 1
#define READACQUIRE 2
#define RENEW 3
#define RELEASE 4
#define READRELEASE 5

#define OURS 1
#define RIVAL 2
#define GONE 3
#define NOTDONE 4
#define UNANSWERED 5

/* The store. */
byte standing; /* token that stands; 0 is none */
byte left;     /* ticks until it runs out */

/* Under way. */
byte current;          /* the request in flight, if it has not landed */
byte late[LATE];       /* abandoned ones: what they ask for … */
byte lateToken[LATE];  /* … and under which token */
byte answer;           /* to the request in flight, come back and not looked at yet */
byte stood;            /* the token that stood there then */

/* The keeper. */
byte state;
byte held;       /* token under which the lease is or may be ours */
byte drawn;      /* tokens drawn so far */
bool former[TOKENS + 1]; /* remembered as former ones */
byte inFlight;   /* request whose answer is wanted */
byte due = ACQUIRE; /* what to send when nothing is */
byte age;        /* ticks since the send that a deadline would run from */
byte deadline;   /* ticks left of it */
byte quarantine; /* ticks left of it */
bool releasing;
byte quarantines;

#ifdef MUTANT_NO_CLOCK_CHECK
#define ADMITTED (state == HELD)
#else
#define ADMITTED (state == HELD && deadline > 0)
#endif

/* ---- the store */

inline judge(t, what) {
	if
	:: standing == t -> what = OURS
	:: standing == 0 -> what = GONE
	:: else -> what = RIVAL
	fi
}

/* land applies a request under a token. ticks is how long ago it was sent, at most. */
inline land(request, t, ticks, what) {
	if
	:: request == ACQUIRE && standing == 0 ->
		standing = t; left = TTL; what = OURS;
		do
		:: left > 1 && TTL - left < ticks -> left--
		:: break
		od
	:: request == ACQUIRE && standing != 0 -> judge(t, what)
	:: request == RENEW ->
		judge(t, what);
		if
		:: what == OURS -> left = TTL
		:: else
		fi
	:: request == RELEASE ->
		judge(t, what);
		if
		:: what == OURS -> standing = 0; left = 0
		:: else
		fi
	fi
}

proctype Store() {
	byte i, what;
end:	do
	:: atomic { current != 0 ->
		land(current, held, age, what);
		if
		:: answer = what; stood = standing
		:: skip /* the answer is lost */
		fi;
		current = 0; what = 0
	}
	:: atomic { current != 0 -> current = 0; answer = NOTDONE }
	:: atomic { current != 0 -> current = 0 } /* lost, which nobody learns */
	:: atomic {
		if
		:: late[0] != 0 -> i = 0
		:: late[1] != 0 -> i = 1
		fi;
		if
		:: lateToken[i] == held -> land(late[i], lateToken[i], age, what)
		:: else -> land(late[i], lateToken[i], TTL, what)
		fi;
#ifdef MUTANT_STALE_ANSWER
		if
		:: inFlight == late[i] && answer == 0 -> answer = what; stood = standing; current = 0
		:: skip
		fi;
#endif
		late[i] = 0; lateToken[i] = 0; i = 0; what = 0
	}
	od
}

/* A rival takes what is free and gives it up at any moment; what it has does not run out by itself. */
proctype Rival() {
end:	do
	:: atomic { standing == 0 -> standing = RIVALS; left = 0 }
	:: atomic { standing == RIVALS -> standing = 0 }
	od
}

inline down(ticks) {
	if
	:: ticks > 0 -> ticks--
	:: else
	fi
}

proctype Clock() {
end:	do
	:: d_step {
		if
		:: left == 1 -> left = 0; standing = 0
		:: left > 1 -> left--
		:: else
		fi;
		down(deadline);
		down(quarantine);
		if
		:: age < TTL -> age++
		:: else
		fi
	}
	od
}

/* ---- the keeper */

#ifdef MUTANT_DEADLINE_FROM_ANSWER
#define DEADLINE_NOW DEADLINE
#else
#define DEADLINE_NOW (age < DEADLINE -> DEADLINE - age : 0)
#endif

/* abandon stops waiting: what has not landed may do so later. Of three, one is lost. */
inline abandon() {
	if
	:: current == 0
	:: current != 0 && late[0] == 0 -> late[0] = current; lateToken[0] = held
	:: current != 0 && late[0] != 0 && late[1] == 0 -> late[1] = current; lateToken[1] = held
	:: current != 0 && late[0] != 0 && late[1] != 0
	fi;
	current = 0; answer = 0; stood = 0; inFlight = 0
}

inline send(request) { inFlight = request; current = request; answer = 0; stood = 0 }

inline forget() { former[held] = true; held = 0 }

inline toQuarantine() {
	abandon();
	forget();
	state = QUARANTINED; due = ACQUIRE; deadline = 0; quarantine = TTL;
	if
	:: quarantines < 2 -> quarantines++
	:: else
	fi
}

inline unsettled() {
	if
	:: releasing -> state = RELEASED
	:: else -> toQuarantine()
	fi
}

inline adopt() {
	if
	:: releasing -> due = RELEASE
	:: else ->
		due = RENEW;
		if
		:: DEADLINE_NOW > 0 -> state = HELD; deadline = DEADLINE_NOW
		:: else /* renewed before any work is admitted */
		fi
	fi
}

inline extend() {
	deadline = DEADLINE_NOW;
	if
	:: deadline == 0 -> toQuarantine()
	:: else
	fi
}

/* refuse decides about a rival. After an acquisition that nobody answered, ours may yet land. */
inline refuse(unknown, rival) {
	if
	:: releasing -> state = RELEASED
	:: else ->
		due = ACQUIRE;
		if
#ifndef MUTANT_FORGETS_UNKNOWN
		:: unknown -> forget()
		:: !unknown -> held = 0
#else
		:: held = 0
#endif
		fi;
		if
#ifndef MUTANT_FORMER_IS_RIVAL
		:: rival != RIVALS && former[rival]
		:: rival == RIVALS || !former[rival] ->
#else
		:: true ->
#endif
			must(rival == RIVALS);
			if
			:: skip
			:: state = FAILED
			fi
		fi
	fi
}

inline again() {
	if
	:: releasing -> state = RELEASED
	:: else -> held = 0; due = ACQUIRE
	fi
}

inline lose() { forget(); deadline = 0; due = ACQUIRE; state = REACQUIRING }

/* transition is the table: a is the answer to the request r. */
inline transition(r, a, rival) {
	if
	:: state == HELD -> /* r == RENEW */
		if
		:: a == OURS -> extend()
		:: a == RIVAL || a == GONE -> lose()
		:: a >= NOTDONE -> due = RENEW
		fi
	:: state != HELD ->
		if
		:: r == ACQUIRE && a == OURS -> adopt()
		:: r == ACQUIRE && a == RIVAL -> refuse(false, rival)
		:: r == ACQUIRE && (a == GONE || a == NOTDONE) -> again()
		:: r == ACQUIRE && a == UNANSWERED -> inFlight = READACQUIRE
		:: r == READACQUIRE && a == OURS -> adopt()
#ifdef MUTANT_ADOPT_RIVAL
		:: r == READACQUIRE && a == RIVAL -> adopt()
#else
		:: r == READACQUIRE && a == RIVAL -> refuse(true, rival)
#endif
		:: r == READACQUIRE && a >= GONE -> unsettled()
		:: r == RENEW && a == OURS -> adopt()
		:: r == RENEW && a == RIVAL -> refuse(false, rival)
		:: r == RENEW && a == GONE -> again()
		:: r == RENEW && a >= NOTDONE -> unsettled()
		:: r == RELEASE && a <= GONE -> state = RELEASED
		:: r == RELEASE && a == NOTDONE -> due = RELEASE
		:: r == RELEASE && a == UNANSWERED -> inFlight = READRELEASE
		:: r == READRELEASE && a == OURS -> due = RELEASE
		:: r == READRELEASE && (a == RIVAL || a == GONE) -> state = RELEASED
		:: r == READRELEASE && a >= NOTDONE -> unsettled()
		fi
	fi;
	r = 0; a = 0; rival = 0
}

#define ASKING (state == NONE || state == REACQUIRING)
#define IDLE ((ASKING || state == HELD) && inFlight == 0)

proctype Keeper() {
	byte r, a, rival;
end:	do
	/* send what is due */
	:: atomic { IDLE && due == ACQUIRE && drawn < TOKENS ->
#ifdef MUTANT_SAME_TOKEN
		drawn = (drawn == 0 -> 1 : drawn);
#else
		drawn++;
#endif
		held = drawn; age = 0;
		send(ACQUIRE)
	}
	:: atomic { IDLE && due == RENEW -> age = 0; send(RENEW) }
	:: atomic { IDLE && due == RELEASE -> send(RELEASE) }

	/* a read is served; its answer may be long on its way */
	:: atomic { (inFlight == READACQUIRE || inFlight == READRELEASE) && answer == 0 -> judge(held, answer); stood = standing }

	/* an answer, or none in time */
	:: atomic { inFlight != 0 && answer != 0 -> r = inFlight; a = answer; rival = stood; abandon(); transition(r, a, rival) }
	:: atomic { inFlight != 0 && answer == 0 -> r = inFlight; a = UNANSWERED; abandon(); transition(r, a, rival) }

	/* the deadline: fence, then quarantine */
	:: atomic { state == HELD && deadline == 0 -> toQuarantine() }
	:: atomic { state == QUARANTINED && quarantine == 0 -> state = REACQUIRING }

	/* given back for good, fenced first */
	:: atomic { !releasing ->
		releasing = true;
		if
		:: state == HELD -> abandon(); state = REACQUIRING; deadline = 0; due = RELEASE
		:: state == QUARANTINED || ASKING && inFlight == 0 -> state = RELEASED
		:: ASKING && inFlight != 0 /* given back when it is answered */
		fi
	}
	:: state == RELEASED || state == FAILED -> break
	od
}

init {
	atomic {
		run Store();
		run Rival();
		run Clock();
		run Keeper()
	}
}

ltl stands { [] (ADMITTED -> standing == held) }
ltl can_reacquire { [] !(ADMITTED && held > 1) }
ltl can_release { [] !(state == RELEASED && due == RELEASE && drawn == 2) }
ltl can_quarantine_twice { [] !(state == HELD && quarantines == 2) }
