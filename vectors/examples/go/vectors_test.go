package client

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

func read(t *testing.T, name string, into any) {
	folder := os.Getenv("BULLMQ_VECTORS")
	if folder == "" {
		folder = "../.."
	}
	text, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil || json.Unmarshal(text, into) != nil {
		t.Fatal("cannot read ", name, ": ", err)
	}
}

func expect(t *testing.T, what string, wanted, got any) {
	if !reflect.DeepEqual(wanted, got) {
		t.Errorf("%s: BullMQ has %v, this client has %v", what, wanted, got)
	}
}

func TestPacking(t *testing.T) {
	var file struct {
		Vectors []struct {
			Name, Hex string
			Value     json.RawMessage
		}
	}
	read(t, "packing.json", &file)
	for _, vector := range file.Vectors {
		expect(t, vector.Name, vector.Hex, hex.EncodeToString(Pack(vector.Value)))
	}
}

func TestScores(t *testing.T) {
	var file struct {
		Delayed []struct {
			DueMs  int64 `json:"due_ms"`
			Before int
			Score  float64
		}
		Prioritized []struct {
			Priority, Counter int64
			Score             float64
		}
	}
	read(t, "scores.json", &file)
	for _, vector := range file.Delayed {
		expect(t, "delayed", vector.Score, DelayedScore(vector.DueMs, vector.Before))
	}
	for _, vector := range file.Prioritized {
		expect(t, "prioritized", vector.Score, PriorityScore(vector.Priority, vector.Counter))
	}
}

func TestAddingAJob(t *testing.T) {
	var file struct {
		Vectors []struct {
			Name      string
			Client    struct{ Queue string }
			Arguments struct {
				Data string `json:"data_raw"`
			}
			Commands []struct {
				Script    string
				Keys      []string
				Arguments []struct{ Text string }
			}
		}
	}
	read(t, "calls/queue.add.json", &file)
	for _, vector := range file.Vectors {
		for _, command := range vector.Commands {
			if command.Script == "addStandardJob" {
				expect(t, vector.Name, command.Keys, AddKeys("bull", vector.Client.Queue))
				expect(t, vector.Name, command.Arguments[1].Text, vector.Arguments.Data)
			}
		}
	}
}
