/*
 * Takeover of a root whose lock carries a lease: internal/rootlock (machine.go, asking.go, holding.go).
 *
 * One server has just written its lock, and two successors want it. The rules: beats are new objects; the owner fences
 * itself two thirds of a lease after the send of its last acknowledged beat, the first deadline running from the send of
 * the request that wrote the lock; a successor that has seen no new beat for a lease and a half, on its own clock, writes
 * a claim, which elects nobody, and then replaces the lock if it is still the version it first read. The owner looks for a
 * claim before each beat and once after its first, before it admits any work. A clean stop replaces the lock by a released
 * record.
 *
 * Every request may land at any later moment or never, and any server may be stopped between any two steps for any time.
 *
 * Carries: nothing is sent by a fenced process (invariant 7), for the root.
 *
 *   one_owner              at most one server is admitted at any instant
 *   can_take_over          witness: a successor gets to serve although nothing was released
 *   can_pass_dead_claim    witness: it does so although the other successor stopped between its claim and its replace
 *   can_take_released      witness: a released root is taken
 *
 * Abstracts: time is ticks of one rate; of a lease's two thirds there are two and of its one and a half four. A beat that
 * is sent again is one beat that lands late, and counts from its first send. Reading the lock and listing the beats are
 * one step each, which is safe to assume since the replace compares what was read. A server serves at most once; one that
 * loses the race for a lock waits for the winner's, and one whose replace is not answered goes on reading the lock, where
 * the code starts over under another id.
 *
 * Leaves out: more than VERSIONS versions of the lock, clocks of different rates, the deletion of old beats, a server that
 * gives up instead of waiting, local roots, leases of different lengths.
 */
#define SERVERS 3
#define FENCE   2 /* ticks: two thirds of a lease */
#ifdef MUTANT_SHORT_SILENCE
#define SILENCE 1
#else
#define SILENCE 4 /* a lease and a half, rounded down */
#endif
#define VERSIONS 5 /* of the lock */

/* What a server is doing. */
#define LOOKING   0
#define WATCHING  1 /* the beats of a lock */
#define SILENT    2 /* a lease and a half without a new one, when last looked */
#define CLAIMED   3 /* claim written, lock not yet replaced */
#define REPLACING 4
#define STARTING  5 /* owns the lock; first beat */
#define CHECKING  6 /* first beat acknowledged; one more look for a claim */
#define SERVING   7
#define GONE      8

/* The store. */
byte version = 1; /* of the lock */
byte owner = 0;   /* who wrote it */
bool released;    /* it is a released record */
bool claim[VERSIONS + SERVERS + 1]; /* superseded.json of that lock; room for what a mutant adds */

typedef Server {
	byte doing;
	byte lock;     /* version it owns, or watches and wants to replace */
	bool fresh;    /* a beat has appeared since its last look at the list */
	byte silence;  /* ticks since it last saw something new */
	byte deadline; /* ticks left until it fences itself */
	byte replace;  /* under way: replace this version of the lock … */
	bool release;  /* … by a released record */
	byte replaced; /* ticks since that was sent */
	byte beat;     /* 1 under way, 2 landed and not acknowledged */
	byte beaten    /* ticks since it was first sent */
}
Server server[SERVERS];
bool everReleased;

#define ADMITTED(s) (server[s].doing == SERVING && server[s].deadline > 0)

/* What else would let a replace through. */
#if defined(MUTANT_REPLACE_ANY)
#define MUTATION || !server[s].release
#elif defined(MUTANT_RELEASE_ANY)
#define MUTATION || server[s].release
#else
#define MUTATION
#endif

proctype Store() {
	byte s, o;
end:	do
	:: atomic { /* a replace lands */
		select(s : 0 .. 2);
		if
		:: server[s].replace == 0
		:: server[s].replace != 0 ->
			if
			:: server[s].replace == version MUTATION ->
				version++; owner = s; released = server[s].release;
				everReleased = everReleased || released
			:: else
			fi;
			server[s].replace = 0
		fi;
		s = 0
	}
	:: atomic { /* a beat lands: a new object in the list of its lock */
		select(s : 0 .. 2);
		if
		:: server[s].beat == 1 ->
			server[s].beat = 2;
			o = 0;
			do
			:: o < SERVERS ->
				if
				:: server[o].doing == WATCHING && server[o].lock == server[s].lock -> server[o].fresh = true
				:: else
				fi;
				o++
			:: else -> break
			od;
			o = 0
		:: else
		fi;
		s = 0
	}
	od
}

inline up(ticks, most) {
	if
	:: ticks < most -> ticks++
	:: else
	fi
}

proctype Clock() {
	byte s;
end:	do
	:: d_step {
		do
		:: s < SERVERS ->
			if
			:: server[s].deadline > 0 -> server[s].deadline--
			:: else
			fi;
			if
			:: server[s].doing == WATCHING -> up(server[s].silence, SILENCE)
			:: else
			fi;
			if
			:: server[s].doing == REPLACING -> up(server[s].replaced, FENCE)
			:: else
			fi;
			if
			:: server[s].beat != 0 -> up(server[s].beaten, FENCE)
			:: else
			fi;
			s++
		:: else -> break
		od;
		s = 0
	}
	od
}

#define me server[s]

#ifdef MUTANT_FENCE_FROM_ACK
#define AFTER_BEAT FENCE
#else
#define AFTER_BEAT (me.beaten < FENCE -> FENCE - me.beaten : 0)
#endif
#ifdef MUTANT_FIRST_DEADLINE_FROM_ANSWER
#define AFTER_REPLACE FENCE
#else
#define AFTER_REPLACE (me.replaced < FENCE -> FENCE - me.replaced : 0)
#endif

inline acknowledge() {
	me.deadline = (AFTER_BEAT > me.deadline -> AFTER_BEAT : me.deadline);
	me.beat = 0; me.beaten = 0
}

inline leave() { me.doing = GONE; me.deadline = 0; me.silence = 0; me.fresh = false; me.replaced = 0 }

inline look() {
	me.silence = 0; me.fresh = false; me.replaced = 0; me.lock = version;
	if
	:: released && version < VERSIONS -> me.replace = version; me.release = false; me.doing = REPLACING
	:: else -> me.doing = WATCHING
	fi
}

proctype Run(byte s) {
end:	do
	/* a successor */
	:: atomic { me.doing == LOOKING -> look() }
	:: atomic { me.doing == WATCHING && version != me.lock -> look() }
	:: atomic { me.doing == WATCHING && me.fresh -> me.fresh = false;
#ifndef MUTANT_IGNORES_BEATS
		me.silence = 0
#endif
	}
	:: atomic { me.doing == WATCHING && !me.fresh && me.silence == SILENCE && version < VERSIONS -> me.doing = SILENT; me.silence = 0 }
	:: atomic { me.doing == SILENT ->
#ifdef MUTANT_CLAIM_BLOCKS
		if
		:: claim[me.lock] -> leave()
		:: else -> claim[me.lock] = true; me.doing = CLAIMED
		fi
#else
		claim[me.lock] = true; me.doing = CLAIMED
#endif
	}
	:: atomic { me.doing == CLAIMED -> me.replace = me.lock; me.release = false; me.doing = REPLACING }
	/* it reads the lock until it is settled: ours, another's, or never to come */
	:: atomic { me.doing == REPLACING && version != me.lock ->
		if
		:: owner == s && !released ->
			me.lock = version;
			me.deadline = AFTER_REPLACE; me.replaced = 0;
			me.doing = STARTING
		:: else -> look()
		fi
	}

	/* an owner: every step sends or admits something, so it compares the clock with the deadline */
	:: atomic { me.doing == STARTING && me.deadline > 0 && me.beat == 0 -> me.beat = 1; me.beaten = 0 }
	:: atomic { me.doing == STARTING && me.deadline > 0 && me.beat == 2 -> acknowledge(); me.doing = CHECKING }
	:: atomic { me.doing == CHECKING ->
		if
		:: claim[me.lock] -> leave()
		:: else -> me.doing = SERVING
		fi
	}
	:: atomic { me.doing == SERVING && me.deadline > 0 && me.beat == 0 ->
		if
		:: claim[me.lock] -> leave()
		:: else -> me.beat = 1; me.beaten = 0
		fi
	}
	:: atomic { me.doing == SERVING && me.beat == 2 -> acknowledge() }
	:: atomic { me.doing >= STARTING && me.doing <= SERVING && me.deadline == 0 -> leave() }
	/* a clean stop: no more beats, then the release, which nobody waits for */
	:: atomic { me.doing == SERVING && me.deadline > 0 && me.beat == 0 && version < VERSIONS -> leave(); me.replace = me.lock; me.release = true }
	:: me.doing == GONE -> break
	od
}

init {
	atomic {
		server[0].doing = STARTING; server[0].lock = 1; server[0].deadline = FENCE;
		run Store();
		run Clock();
		run Run(0);
		run Run(1);
		run Run(2)
	}
}

ltl one_owner { [] !(ADMITTED(0) && ADMITTED(1) || ADMITTED(0) && ADMITTED(2) || ADMITTED(1) && ADMITTED(2)) }
ltl can_take_over { [] !(ADMITTED(2) && owner == 2 && server[0].doing == GONE && !everReleased) }
ltl can_pass_dead_claim { [] !(ADMITTED(2) && server[1].doing == CLAIMED && !everReleased) }
ltl can_take_released { [] !(ADMITTED(1) && everReleased && version == 3) }
