package main

// operateCommands are what a person does with a running cluster.
type operateCommands struct {
	Overview   overviewCommand   `cmd:"" help:"Say whether the cluster is behind, where and why."`
	Tables     tablesCommand     `cmd:"" help:"List the tables with what is pending, the longest waiting first."`
	Commits    commitsCommand    `cmd:"" help:"List the newest commits of a table's log."`
	Explain    explainCommand    `cmd:"" help:"Say for each shard of a table why it is or is not being merged now."`
	Failures   failuresCommand   `cmd:"" help:"List what fails, what needs a person first."`
	Masters    mastersCommand    `cmd:"" help:"List the masters and the slots that they own."`
	Doctor     doctorCommand     `cmd:"" help:"Examine root, etcd and cluster, and say what to do about what is wrong."`
	Merge      mergeCommand      `cmd:"" help:"Ask for a merge of a table, however little is pending."`
	Pause      pauseCommand      `cmd:"" help:"Stop a table from being queued; writers go on."`
	Resume     resumeCommand     `cmd:"" help:"Let a paused table be queued again."`
	Policy     policyCommand     `cmd:"" help:"Show and change when work on a table is due."`
	Retry      retryCommand      `cmd:"" help:"Try at once what failed, instead of after its backoff."`
	Skip       skipCommand       `cmd:"" help:"Give up the rows of a generation that cannot be merged."`
	Cancel     cancelCommand     `cmd:"" help:"Stop a running execution."`
	Drain      drainCommand      `cmd:"" help:"Let an executor finish what it runs and claim nothing more."`
	Undrain    undrainCommand    `cmd:"" help:"Let a drained executor claim again."`
	Cleanup    cleanupCommand    `cmd:"" help:"List what a cleanup of a table would delete."`
	Completion completionCommand `cmd:"" help:"Print a script that completes commands and flags in a shell."`
	Man        manCommand        `cmd:"" help:"Write man pages of all commands into a directory."`
}
