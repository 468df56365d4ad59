/*
 * The manifest chain of a shard: internal/shardmanifest (transition.go, hold.go, settle.go, clean.go).
 *
 * Three writers claim the shard, two of them seal; a cleanup trims, deletes manifests at or below the durable boundary
 * and sweeps generation files that no manifest names. A seal's put is sent up to twice, unchanged; every copy lands at any
 * later moment or never, its answer may be lost, and whoever sent it may be stopped between any two steps for any time. So
 * a committer can stall at a number, find it used and deleted, and create it again: the trap of numbered chains.
 *
 * Carries: exactly once (invariant 1) and in order (2) on the side of the writer; nothing about to become readable is
 * deleted (9). All are assertions:
 *
 *   - a seal that is settled as sealed is in the chain, one settled as unsealed is not and never comes into it;
 *   - what comes into the chain is built on the version before it, so no fenced writer's seal ever does;
 *   - the file that a manifest names is there when it comes into the chain.
 *
 *   can_void, can_doubt, can_outlive   witnesses: a put is void, a seal ends in doubt, a seal is settled as sealed
 *                                      after its version was deleted
 *
 * Abstracts: the boundary stays one version behind instead of sixteen, one claim is remembered instead of sixteen. The
 * merged mark is any up to sealed_through. Cleanup deletes all that it may at once. A copy that is not sent is one that
 * never lands, so that sending again is deciding at first to send twice. Listing and reading the newest manifest are one step: the code lists again when what it listed is gone. A ghost keeps
 * the state of the chain as its newest version tells it; a version comes into the chain if it is the first to be created
 * under its number, since the next one can only be built on it.
 *
 * Leaves out: closing and retiring, ages of trimmed files, bounds of sizes, more than VERSIONS versions.
 */
#define WRITERS  3
#define CLEANUP  3 /* the fourth actor */
#define ACTORS   4
#ifndef VERSIONS
#define VERSIONS 6
#endif
#define KEPT     1 /* versions above the boundary besides the newest */
#define CLAIMS   1 /* claims remembered */

#define UNKNOWN 0
#define APPLIED 1
#define REFUSED 2

#define CLAIM 1
#define SEAL  2
#define TRIM  3

#define must(x) assert(x)

/* The store: who created the object that is there now; 0 is nobody. */
#define NOTHING 0
#define NONCE(actor, v) ((actor) * 8 + (v))
byte object[VERSIONS + 2];
bool file[WRITERS];     /* of the writer's present seal */
byte fileOf[WRITERS];   /* its generation */

/* The chain as its newest version tells it. */
byte newest, boundary, epoch, sealed, trimmed;
byte holder = ACTORS;
byte sealedBy[VERSIONS + 2];   /* nonce of each generation's seal */
byte sealedAt[WRITERS + 2];    /* sealed_through at each claim */

/* What each actor has under way: up to two copies of a put, and one of a put it no longer cares for. */
typedef Put {
	byte kind;
	byte version;
	byte generation; /* that is sealed, or trimmed through */
	byte copies;     /* under way */
	byte answer;
	bool counted;    /* it came into the chain */
	byte stale       /* version of an earlier put of which a copy is under way */
}
Put put[ACTORS];
#ifdef WITNESS
bool voided, doubted, outlived;
#define note(x) x = true
#else
#define note(x) skip
#endif

inline apply(a) {
	newest++;
	object[newest] = NONCE(a, newest);
	boundary = (newest > 1 + KEPT && newest - 1 - KEPT > boundary -> newest - 1 - KEPT : boundary);
	put[a].counted = true;
	if
	:: put[a].kind == CLAIM ->
		epoch++; holder = a; sealedAt[epoch] = sealed
	:: put[a].kind == SEAL ->
		must(holder == a);
		must(put[a].generation == sealed + 1);
		must(file[a] && fileOf[a] == put[a].generation);
		sealed++;
		sealedBy[sealed] = NONCE(a, newest)
	:: put[a].kind == TRIM ->
		trimmed = put[a].generation
	fi
}

/* Copies land. */
proctype Store() {
	byte a, answer;
end:	do
	:: atomic {
		if
		:: put[0].copies > 0 -> a = 0
		:: put[1].copies > 0 -> a = 1
		:: put[2].copies > 0 -> a = 2
		:: put[3].copies > 0 -> a = 3
		fi;
			put[a].copies--;
			if
			:: put[a].version == newest + 1 -> apply(a); answer = APPLIED
			:: put[a].version <= newest && object[put[a].version] == NOTHING ->
				object[put[a].version] = NONCE(a, put[a].version);
				answer = APPLIED;
				note(voided)
			:: put[a].version <= newest && object[put[a].version] == NONCE(a, put[a].version) -> answer = APPLIED
			:: else -> answer = REFUSED
			fi;
			if
			:: put[a].kind == SEAL -> put[a].answer = answer
			:: skip /* it is lost, or not looked at */
			fi;
		a = 0; answer = 0
	}
	:: atomic { /* of a put that was settled long ago */
		if
		:: put[0].stale != 0 -> a = 0
		:: put[1].stale != 0 -> a = 1
		fi;
			must(put[a].stale <= newest); /* else it would come into the chain */
			if
			:: object[put[a].stale] == NOTHING -> object[put[a].stale] = NONCE(a, put[a].stale)
			:: else
			fi;
			put[a].stale = 0;
		a = 0
	}
	od
}

/* settled stops caring for a put; one copy of it may still be under way. */
inline settled(a) {
	if
	:: put[a].copies > 0 && put[a].kind == SEAL -> put[a].stale = put[a].version
	:: skip
	fi;
	put[a].copies = 0; put[a].kind = 0; put[a].version = 0; put[a].generation = 0; put[a].answer = 0; put[a].counted = false
}

inline start(a, what, n) {
	put[a].kind = what; put[a].version = newest + 1; put[a].generation = n; put[a].copies = 1;
	put[a].answer = UNKNOWN; put[a].counted = false
}

#ifdef MUTANT_NO_BOUNDARY
#define ABOVE(v) true
#else
#define ABOVE(v) ((v) > boundary)
#endif
#ifdef MUTANT_REFUSAL_IS_FINAL
#define REFUSAL(v) true
#else
#define REFUSAL(v) ABOVE(v)
#endif

#define IS_SEALED   must(put[w].counted)
#define IS_UNSEALED must(!put[w].counted)

proctype Writer(byte w; byte seals) {
	byte mine, base, next; /* epoch; the newest manifest it knows and the generation that follows it */

	/* Claim: settled by the newest manifest, whatever the answer was. */
	do
	:: atomic { holder == w -> mine = epoch; base = newest; next = sealed + 1; settled(w); break }
	:: atomic { holder != w && put[w].kind == 0 && newest < VERSIONS -> start(w, CLAIM, 0) }
	:: atomic { holder != w && put[w].kind == CLAIM && put[w].answer != UNKNOWN && !put[w].counted && put[w].version <= newest -> settled(w) }
	:: atomic { holder != w && put[w].counted -> settled(w); goto end } /* fenced already */
	:: goto end /* in doubt, or stopped: its claim may yet land */
	od;

	do
	/* Seal: the file first, then the version that names it, built on the newest manifest it knows. */
	:: atomic { put[w].kind == 0 && seals > 0 && base < VERSIONS ->
		file[w] = true; fileOf[w] = next;
		start(w, SEAL, next);
#ifndef MUTANT_STALE_BASE
		put[w].version = base + 1;
#endif
		if
		:: put[w].copies = 2
		:: skip
		fi
	}

	/* Settle: any time after an answer, or after giving up on one, but only once the number exists. */
#ifdef MUTANT_NO_REISSUE
	:: atomic { put[w].kind == SEAL && newest < put[w].version -> IS_UNSEALED; file[w] = false; settled(w); goto end }
#endif
	:: atomic { put[w].kind == SEAL && newest >= put[w].version ->
		if
		:: newest == put[w].version ->
			if
			:: object[newest] == NONCE(w, newest) -> IS_SEALED
			:: else -> IS_UNSEALED
			fi
		:: newest > put[w].version && ABOVE(put[w].version) && put[w].answer == APPLIED -> IS_SEALED
		:: newest > put[w].version && REFUSAL(put[w].version) && put[w].answer == REFUSED -> IS_UNSEALED
		:: else ->
			if
			:: put[w].generation > sealed -> IS_UNSEALED
			:: put[w].generation <= sealed && put[w].generation > trimmed ->
				if
				:: sealedBy[put[w].generation] == NONCE(w, put[w].version) ->
					IS_SEALED;
					if
					:: object[put[w].version] == NOTHING -> note(outlived)
					:: else
					fi
				:: else -> IS_UNSEALED
				fi
			:: put[w].generation <= trimmed ->
				if
				:: epoch == mine && holder == w -> IS_SEALED
				:: epoch > mine && mine + 1 > epoch - CLAIMS -> /* the next claim is listed */
					if
					:: put[w].generation <= sealedAt[mine + 1] -> IS_SEALED
					:: else -> IS_UNSEALED
					fi
				:: else ->
#ifdef MUTANT_DOUBT_IS_UNSEALED
					IS_UNSEALED;
#endif
					note(doubted)
				fi
			fi
		fi;
		if
		:: put[w].counted -> seals--
		:: else
		fi;
		file[w] = false; fileOf[w] = 0;
		settled(w);
		base = newest; next = sealed + 1;
		if
		:: holder != w -> goto end /* fenced */
		:: else
		fi
	}
	:: atomic { put[w].kind == 0 && (seals == 0 || base >= VERSIONS) -> goto end }
	od;
end:	atomic { mine = 0; base = 0; next = 0; seals = 0 }
}

proctype Cleanup() {
	byte v;
end:	do
	/* Trim up to the merged mark; a put that was not answered is given up on, and tried again some other time. */
	:: atomic { put[CLEANUP].kind == 0 && sealed > trimmed && newest < VERSIONS ->
		select(v : (trimmed + 1) .. sealed);
		start(CLEANUP, TRIM, v);
		v = 0
	}
	:: atomic { put[CLEANUP].kind == TRIM && put[CLEANUP].version <= newest -> settled(CLEANUP) }

	/* Delete manifests. */
	:: d_step { boundary > 0 ->
		v = 1;
		do
#ifdef MUTANT_DELETE_ABOVE_BOUNDARY
		:: v < newest -> object[v] = NOTHING; v++
#else
		:: v <= boundary -> object[v] = NOTHING; v++
#endif
		:: else -> break
		od;
		v = 0
	}

	/* Sweep files that no manifest names, of numbers that are sealed: they can never be named any more. */
	:: atomic {
		if
		:: file[0] -> v = 0
		:: file[1] -> v = 1
		fi;
#ifdef MUTANT_SWEEP_UNNAMED
		if
		:: !put[v].counted -> file[v] = false
		:: else
		fi;
#else
		if
		:: !put[v].counted && fileOf[v] > trimmed && fileOf[v] <= sealed -> file[v] = false
		:: else
		fi;
#endif
		v = 0
	}
	od
}

init {
	atomic {
		run Store();
		run Writer(0, 1);
		run Writer(1, 1);
		run Writer(2, 0);
		run Cleanup()
	}
}

#ifdef WITNESS
ltl can_void { [] !voided }
ltl can_doubt { [] !doubted }
ltl can_outlive { [] !outlived }
#endif
