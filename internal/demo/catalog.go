package demo

// What the shop of the demo sells, and to whom. The order of a list is part of the generated data: appending to one
// changes what a seed means.

type product struct {
	name  string
	cents int64
}

var products = []product{
	{"espresso cup", 895}, {"moka pot", 3450}, {"hand grinder", 8900}, {"kettle 1.2 l", 6495}, {"filter papers", 575},
	{"house blend 1 kg", 2390}, {"decaf 500 g", 1490}, {"milk jug", 1995}, {"tamper", 2750}, {"kitchen scale", 3999},
	{"cold brew bottle", 2495}, {"travel mug", 2890}, {"descaler", 990}, {"cleaning brush", 650}, {"gift card", 5000},
	{"espresso machine", 89900}, {"knock box", 2290}, {"syrup vanilla", 745}, {"cocoa 250 g", 820}, {"tea sampler", 1690},
}

var countries = []string{"DE", "FR", "GB", "US", "NL", "IT", "ES", "PL", "SE", "JP", "CA", "AU", "BR", "IN", "CH", "AT"}

var channels = []string{"web", "app", "store", "phone", "partner"}

var firstNames = []string{
	"Ada", "Ben", "Chloé", "Dario", "Emma", "Finn", "Grace", "Hugo", "Ines", "Jonas", "Kai", "Lea", "Mats", "Nora", "Omar", "Paula",
	"Quinn", "Rosa", "Søren", "Tara", "Uma", "Viktor", "Wanda", "Xavier", "Yuki", "Zoë",
}

var lastNames = []string{
	"Abbott", "Bauer", "Costa", "Dubois", "Eriksen", "Fischer", "García", "Haas", "Ito", "Jansen", "Kowalski", "Lang", "Moreau",
	"Novak", "O'Brien", "Patel", "Quist", "Rossi", "Schmidt", "Tanaka", "Ueda", "Vogel", "Weber", "Xu", "Young", "Zimmer",
}

// customers are all pairs of a first and a last name.
var customers = func() []string {
	all := make([]string, 0, len(firstNames)*len(lastNames))
	for _, last := range lastNames {
		for _, first := range firstNames {
			all = append(all, first+" "+last)
		}
	}
	return all
}()

// status is where an order is in its life.
type status uint8

const (
	placed status = iota
	paid
	packed
	shipped
	delivered
	returned
	cancelled
)

var statusNames = [...]string{"placed", "paid", "packed", "shipped", "delivered", "returned", "cancelled"}

// steps says where an order may go next, with what weight of 100. What is left of the 100 forgets the order: its row is
// deleted from the table of states, as privacy laws ask of a shop.
var steps = [...][]struct {
	to     status
	weight uint64
}{
	placed:    {{paid, 90}, {cancelled, 10}},
	paid:      {{packed, 95}, {cancelled, 5}},
	packed:    {{shipped, 100}},
	shipped:   {{delivered, 100}},
	delivered: {{returned, 10}},
	returned:  {},
	cancelled: {},
}
