/*
 * Commit, release and detached publish, with a crash between any two: internal/deltalog (Decide, Commit), internal/merge,
 * internal/executor (run, then publish), internal/demand (Join), internal/scan.
 *
 * Two executions of a group's unit, one after the other or side by side: a turn can expire at any moment, and its
 * execution goes on as a zombie. Each claims the turn, plans from the log, writes its files, decides, puts the next
 * version (which lands at any later moment or never), releases, and then publishes. Any may be stopped between two steps for any time or for ever. Beside them a writer seals and publishes, another engine
 * commits once, a scan publishes what storage shows, again and again, and all of etcd is lost once. With STORAGE defined
 * there are three executions and no demand, with LIVE one execution.
 *
 * Carries:
 *   assert       every generation is merged exactly once and in order (invariants 1 and 2), by whoever; demand's marks only
 *                rise while etcd stands (3); one turn at a time, unless it expired (6); the files of a commit are there
 *                when it lands (9)
 *   never_ahead  demand never shows more merged than the log, nor more sealed than the manifest
 *   rebuilt      in the end demand equals storage, whatever was lost, late or dropped (11); under weak fairness
 *   can_rebase, can_commit_as_zombie, can_doubt, can_publish_late   witnesses
 *
 * Abstracts: one shard in one group. Claim, release and publish are one step each: a late one is a stopped process,
 * since each compares what it found. A put that is sent again unchanged is one put, as its number is never deleted here. What a put's silence ends in is one look at the log.
 *
 * Leaves out: numbers that are deleted (manifest.pml has that trap), several shards in one commit, upsert's conflicts of
 * files, ages and the sweep, epochs and incarnations, seal times, that anything is merged at all if executions fail.
 */
#if defined(STORAGE)
#define EXECUTIONS  3
#elif defined(LIVE)
#define EXECUTIONS  1
#else
#define EXECUTIONS  2
#endif
#define GENERATIONS 2
#define VERSIONS    4 /* of the log: three commits and a foreign one */
#define FOREIGN     9

#ifdef CLAIMS_ONLY /* set for formulas, so that a refutation is the formula's own */
#define must(x) skip
#else
#define must(x) assert(x)
#endif

#ifdef WITNESS
bool rebased, zombie, doubted, publishedLate;
#define note(x) x = true
#else
#define note(x) skip
#endif

/* Storage. */
byte sealed;
byte newest, mark;           /* of the log */
byte by[VERSIONS + 1];       /* whose commit a version is, plus one */
bool file[EXECUTIONS];

/* etcd. */
byte turn;                   /* whose, plus one; 0 is free */
bool holding[EXECUTIONS];    /* ghost: the turn is theirs by right */
bool sealedKnown, mergedKnown;
byte sealedSaid, mergedSaid; /* demand: the join of what was published */

/* Executions. */
typedef Intent {
	byte from, to;
	byte version; /* that is put */
#ifdef WITNESS
	byte read;    /* version that it was planned from */
#endif
	bool underWay
}
Intent intent[EXECUTIONS];

inline commit(e) {
	newest++;
	by[newest] = e + 1;
	must(mark == intent[e].from && intent[e].to > mark && intent[e].to <= sealed);
	must(file[e]);
#ifdef WITNESS
	rebased = rebased || intent[e].read + 1 < newest;
#endif
	if
	:: turn != e + 1 -> note(zombie)
	:: else
	fi;
	mark = intent[e].to
}

proctype Store() {
	byte e;
end:	do
	:: atomic { /* a put lands */
		if
		:: intent[0].underWay -> e = 0
#if EXECUTIONS > 1
		:: intent[1].underWay -> e = 1
#endif
#if EXECUTIONS > 2
		:: intent[2].underWay -> e = 2
#endif
		fi;
		intent[e].underWay = false;
		if
		:: intent[e].version == newest + 1 -> commit(e)
		:: else /* the number is taken */
		fi;
		e = 0
	}
	:: atomic { newest == 1 && by[VERSIONS] == 0 -> newest++; by[newest] = FOREIGN } /* another engine */
	od
}

inline setMerged(m) {
	must(!mergedKnown || m >= mergedSaid);
	mergedKnown = true;
	mergedSaid = m
}

/* The join. */
inline publish(hasSealed, s, hasMerged, m) {
	if
	:: hasSealed && (!sealedKnown || s > sealedSaid) -> sealedKnown = true; sealedSaid = s
	:: else
	fi;
	if
	:: hasMerged && mergedKnown && m < mergedSaid ->
		note(publishedLate);
#ifdef MUTANT_SCAN_LOWERS
		if
		:: hasSealed -> setMerged(m)
		:: else
		fi
#endif
	:: hasMerged && (!mergedKnown || m >= mergedSaid) -> setMerged(m)
	:: !hasMerged
	fi
}

#define me intent[e]

/* Own files may go unless a request could yet make them visible. */
inline drop() {
	if
	:: mayDelete -> file[e] = false
	:: else
	fi
}

proctype Execution(byte e) {
	byte done; /* the mark to publish */
	bool mayDelete = true;

	atomic { turn == 0 ->
		must(!holding[0]);
#if EXECUTIONS > 1
		must(!holding[1]);
#endif
#if EXECUTIONS > 2
		must(!holding[2]);
#endif
		turn = e + 1; holding[e] = true
	}
plan:	atomic {
#ifdef WITNESS
		me.read = newest;
#endif
		me.from = mark; me.to = 0;
		if
		:: mark == sealed -> goto release
		:: mark + 1 <= sealed -> me.to = mark + 1
		:: mark + 2 <= sealed -> me.to = mark + 2
		fi
	}
	file[e] = true;
decide:	atomic {
		if
		:: newest >= VERSIONS -> drop(); goto release
#ifndef MUTANT_NO_TXN_CHECK
		:: newest < VERSIONS && mark >= me.to -> done = mark; drop(); goto release /* already merged */
#ifndef MUTANT_REBASE_PARTIAL
		:: newest < VERSIONS && mark < me.to && mark != me.from -> drop(); goto plan
#endif
#endif
		:: else -> /* rebase */
			me.version = newest + 1; me.underWay = true
		fi
	}
#ifdef MUTANT_PUBLISH_EARLY
	atomic { publish(false, 0, true, me.to) }
#endif
	/* An answer, or after any silence one look at the number. */
	atomic {
		if
		:: by[me.version] != 0 ->
			if
			:: by[me.version] == e + 1 -> done = me.to /* ours: what else is sent finds it there */
			:: else -> me.underWay = false;
				if
				:: mayDelete = true
				:: mayDelete = false /* its outcome was unknown once */
				fi;
				goto decide /* another's, for good */
			fi
		:: by[me.version] == 0 -> /* in doubt */
			note(doubted);
#ifdef MUTANT_DELETE_IN_DOUBT
			file[e] = false
#else
			mayDelete = false
#endif
		fi
	}
release:
	atomic {
		if
#ifdef MUTANT_BLIND_RELEASE
		:: turn != 0 -> must(turn == e + 1 || !holding[turn - 1]); turn = 0
#else
		:: turn == e + 1 -> turn = 0
#endif
		:: else
		fi;
		holding[e] = false
	}
#ifndef STORAGE
	/* Detached: late, or dropped. */
	if
	:: atomic { done > 0 -> publish(false, 0, true, done) }
	:: skip
	fi;
#endif
	atomic {
		done = 0; mayDelete = false;
		if
		:: !me.underWay -> me.from = 0; me.to = 0; me.version = 0; file[e] = false
		:: else
		fi
	}
}

/* Turns expire with their lease, whatever their execution does. */
proctype Expiry() {
end:	do
	:: atomic { turn != 0 -> holding[turn - 1] = false; turn = 0 }
	od
}

proctype Writer() {
	byte s;
end:	do
	:: atomic { sealed < GENERATIONS -> sealed++; s = sealed }
#ifndef STORAGE
	:: atomic { s > 0 -> publish(true, s, false, 0); s = 0 }
#endif
	od
}

#ifndef STORAGE
/* The newest manifest first, then the log, then both marks. */
proctype Scan() {
	byte s, m;
end:	do
	:: s = sealed; m = mark;
#ifndef MUTANT_NO_SCAN
		atomic { publish(true, s, true, m); s = 0; m = 0 }
#else
		s = 0; m = 0
#endif
	od
}

/* All of etcd is lost, once. */
proctype Loss() {
	atomic {
		sealedKnown = false; mergedKnown = false; sealedSaid = 0; mergedSaid = 0;
		if
		:: turn != 0 -> holding[turn - 1] = false
		:: else
		fi;
		turn = 0
	}
}
#endif

init {
	atomic {
		run Store();
		run Execution(0);
#if EXECUTIONS > 1
		run Execution(1);
#endif
		run Expiry();
		run Writer();
#ifdef STORAGE
		run Execution(2)
#else
		run Scan();
		run Loss()
#endif
	}
}

ltl never_ahead { [] ((mergedKnown -> mergedSaid <= mark) && (sealedKnown -> sealedSaid <= sealed)) }
ltl rebuilt { <> [] (mergedKnown && sealedKnown && mergedSaid == mark && sealedSaid == sealed) }
#ifdef WITNESS
ltl can_rebase { [] !rebased }
ltl can_commit_as_zombie { [] !zombie }
ltl can_doubt { [] !doubted }
ltl can_publish_late { [] !publishedLate }
#endif
