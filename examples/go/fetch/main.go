// Command fetch writes the Lua scripts of the pinned bullmq package into a folder. `go generate` runs it.
//
// The package comes from npm's registry (or from that of NPM_CONFIG_REGISTRY) and is verified by its hash before it is
// unpacked.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

const (
	version = "5.62.0"
	// integrity is npm's hash of the package, as in every package-lock.json that contains this version.
	integrity   = "Q+UwvZs53FeYeJgkGuhtnUBh+rgvi4kvoLiCLBcc36ukB1UvE3/Lw5jx7rDCEgTMWSSyUClpnGpP+B8lGE64GQ=="
	largest     = 50 << 20
	usualSource = "https://registry.npmjs.org"
)

var (
	scriptName = regexp.MustCompile(`^package/dist/cjs/scripts/(\w+-\d+)\.js$`)
	content    = regexp.MustCompile("(?s)const content = `((?:[^`\\\\]|\\\\.)*)`;")
	escape     = regexp.MustCompile(`(?s)\\(.)`)
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: fetch FOLDER")
	}
	count, err := fetch(os.Args[1])
	if err != nil {
		log.Fatalf("the Lua scripts of bullmq %s: %v", version, err)
	}
	log.Printf("%d scripts of bullmq %s are in %s", count, version, os.Args[1])
}

func fetch(folder string) (int, error) {
	archive, err := download()
	if err != nil {
		return 0, err
	}
	digest := sha512.Sum512(archive)
	if found := base64.StdEncoding.EncodeToString(digest[:]); found != integrity {
		return 0, fmt.Errorf("the registry sent another package: its SHA-512 is %s", found)
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return 0, err
	}
	count := 0
	for files := tar.NewReader(unzipped); ; {
		header, err := files.Next()
		if err == io.EOF {
			return count, nil
		} else if err != nil {
			return count, err
		}
		named := scriptName.FindStringSubmatch(header.Name)
		if named == nil {
			continue
		}
		module, err := io.ReadAll(files)
		if err != nil {
			return count, err
		}
		lua, err := luaOf(string(module))
		if err != nil {
			return count, fmt.Errorf("%s: %w", header.Name, err)
		}
		if err := os.WriteFile(filepath.Join(folder, named[1]+".lua"), []byte(lua), 0o644); err != nil {
			return count, err
		}
		count++
	}
}

func download() ([]byte, error) {
	source := usualSource
	for _, name := range []string{"NPM_CONFIG_REGISTRY", "npm_config_registry"} {
		if chosen := os.Getenv(name); chosen != "" {
			source = strings.TrimSuffix(chosen, "/")
		}
	}
	reply, err := http.Get(source + "/bullmq/-/bullmq-" + version + ".tgz")
	if err != nil {
		return nil, err
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", reply.Request.URL, reply.Status)
	}
	return io.ReadAll(io.LimitReader(reply.Body, largest))
}

// luaOf returns the text of the template literal `content` in a module of JavaScript.
func luaOf(module string) (string, error) {
	literal := content.FindStringSubmatch(module)
	if literal == nil {
		return "", fmt.Errorf("no Lua in it")
	}
	return escape.ReplaceAllStringFunc(literal[1], func(escaped string) string {
		if plain, known := map[string]string{`\n`: "\n", `\t`: "\t", `\r`: "\r"}[escaped]; known {
			return plain
		}
		return escaped[1:]
	}), nil
}
