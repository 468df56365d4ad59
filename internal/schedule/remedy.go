package schedule

// Remedy says what a person can do about a failure, in one or two sentences. The message says what happened.
func (f Failure) Remedy() string {
	if remedy, ok := remedies[f.Code]; ok {
		return remedy
	}
	switch {
	case f.Class == Data && f.Generation > 0:
		return remedyGeneration
	case f.Class == Data:
		return "The data is at fault: repair what the message names, then `tidemark retry`."
	case f.Class == Config:
		return "Correct the configuration that the message names, then `tidemark retry`."
	case f.NeedsAttention():
		return "It has failed too often to cure itself: look at the message and at the executor's log, then `tidemark retry`."
	}
	return "It is tried again by itself; nothing needs to be done."
}

const remedyGeneration = "Restore the generation's file and `tidemark retry`, or give its rows up with `tidemark skip`."

// remedies are those of codes that say more than their class. The codes are those of internal/merge, of the owner's
// watchdog and of internal/control.
var remedies = map[string]string{
	"generation_damaged": remedyGeneration,
	"generation_missing": "Somebody deleted the file: restore it and `tidemark retry`, or give its rows up with `tidemark skip`.",
	"schema_clash":       "The generation's columns cannot become the table's: skip it with `tidemark skip` and let its writer write the columns that the message asks for.",
	"rows_refused":       "The generation holds rows that the table's rules exclude: skip it with `tidemark skip`, and write its good rows again.",
	"manifest_damaged":   "The shard's newest manifest makes no sense: restore it from a copy of the store, then `tidemark retry`. Never delete manifests.",
	"mark_regressed":     "Somebody expired transactions or replaced the table's log: restore the log, or drop and create the table and write it again. It is never replayed by itself, for that would double rows.",
	"wrong_bucket":       "A writer claimed a shard that is no bucket of this upsert table: stop that writer; its shard is not merged.",
	"base_file_damaged":  "A file of the table itself cannot be read: restore it from a copy of the store, then `tidemark retry`.",
	"store_refused":      "The store refuses the executors: correct credentials, permissions or the bucket, then `tidemark retry`.",
	"unsupported_table":  "The table needs a Delta feature that Tidemark lacks: remove the feature that the message names, or let another engine have the table.",
	"table_unreadable":   "The table's log or settings cannot be used: put them back as the message says, then `tidemark retry`.",
	"stuck":              "Executions complete nothing for longer than the idle timeout: look at the store's latency and the executor's log.",
	"revoked_idle":       "An executor held its turns and completed nothing: look at its log, and restart it if it hangs.",
	"turn_vanished":      "Executors disappear while at it: look for kills for memory, and lower --slots or raise the memory.",
}
