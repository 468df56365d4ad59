package etcd_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"tidemark/internal/clock"
	"tidemark/internal/etcd"
	"tidemark/test/etcd/etcdtest"
)

func TestSpaceOfARealEtcdIsShown(t *testing.T) {
	client := etcdtest.Start(t)
	space, err := etcd.ReadSpace(t.Context(), client)
	if err != nil || space.Members != 1 || space.Bytes <= 0 || space.BytesInUse <= 0 || space.QuotaBytes < space.Bytes || space.NoSpaceAlarm {
		t.Errorf("%+v, %v", space, err)
	}
	shown := gather(t, client)
	if len(shown) != 6 || shown["tidemark_etcd_up"] != 1 || shown["tidemark_etcd_endpoints_up"] != 1 || shown["tidemark_etcd_no_space"] != 0 {
		t.Errorf("%v", shown)
	}
}

// gather is the metrics by name.
func gather(t *testing.T, client *clientv3.Client) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(etcd.NewSpaceMetrics(client, clock.System()))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		all[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
	}
	return all
}

func TestTheAlarmOfAFullEtcdIsShown(t *testing.T) {
	client := etcdtest.Start(t)
	status, err := client.Status(t.Context(), client.Endpoints()[0])
	if err != nil {
		t.Fatal(err)
	}
	alarm := clientv3.AlarmMember{MemberID: status.Header.MemberId, Alarm: etcdserverpb.AlarmType_NOSPACE}
	raise(t, client, &alarm)
	space, err := etcd.ReadSpace(t.Context(), client)
	if err != nil || !space.NoSpaceAlarm {
		t.Errorf("%+v, %v", space, err)
	}
	if _, err := client.AlarmDisarm(t.Context(), &alarm); err != nil {
		t.Fatal(err)
	}
	if space, err = etcd.ReadSpace(t.Context(), client); err != nil || space.NoSpaceAlarm {
		t.Errorf("disarmed, and yet %+v, %v", space, err)
	}
}

// raise raises an alarm as etcd does when it is full; its client has no call for that.
func raise(t *testing.T, client *clientv3.Client, alarm *clientv3.AlarmMember) {
	t.Helper()
	_, err := etcdserverpb.NewMaintenanceClient(client.ActiveConnection()).Alarm(t.Context(), &etcdserverpb.AlarmRequest{
		Action: etcdserverpb.AlarmRequest_ACTIVATE, MemberID: alarm.MemberID, Alarm: alarm.Alarm,
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAnEtcdThatIsGoneIsShownAsDown(t *testing.T) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	shown := gather(t, client)
	if names := slices.Collect(maps.Keys(shown)); !slices.Equal(names, []string{"tidemark_etcd_up"}) || shown["tidemark_etcd_up"] != 0 {
		t.Errorf("%v", shown)
	}
}
