// Package web is the page that every master serves: overview, tables, turns, executors, masters and failures, for people.
//
//	web.go      routes, and what every page has in common
//	pages.go    what each page shows; act.go what it does, which it asks about first
//	format.go   numbers, sizes and times as people read them
//	templates/  the pages; static/ their style, the one script of ours, and vendored libraries with their licences
//
// A page is rendered here, whole, and works at once without its script. The script then follows the stream of changes and
// asks for the page's live part again, at most once a second, and morphs it into place: focus, selection and scrolling
// stay. Lists are searched, sorted and cut into pages here, so a fleet of ten thousand tables costs a browser fifty rows.
//
// It guarantees:
//   - Everything it needs comes from this binary: no build step, no other host. The content security policy allows
//     nothing else, no inline script and no inline style.
//   - It changes nothing that was not asked about and confirmed. What a question says comes from a dry run of the very
//     action, and what is shown afterwards is what the action says it did.
//
// It relies on internal/api for who may see and do what and for the stream of changes, on internal/observe for what it
// shows and on internal/control for what it does.
package web
