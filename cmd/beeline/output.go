package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"

	"github.com/beeline-cni/beeline/cmd/internal/cli"
)

// jsonPath is the prefix of an output format with a template, as kubectl's.
const jsonPath = "jsonpath="

// dataFormats are the output formats that every command has.
const dataFormats = "json, yaml, jsonpath=TEMPLATE"

// checkFormat checks the value of --output, which is one of the comma-separated formats.
func checkFormat(format, formats string) error {
	if template, ok := strings.CutPrefix(format, jsonPath); ok {
		_, err := parseJSONPath(template)
		return err
	}
	if slices.Contains(strings.Split(formats, ", "), format) {
		return nil
	}
	return fmt.Errorf("--output: %q is none of %s", format, formats)
}

func parseJSONPath(template string) (*jsonpath.JSONPath, error) {
	if template == "" {
		return nil, fmt.Errorf("--output: %s needs a template, as in %s{[*].name}", jsonPath, jsonPath)
	}
	if !strings.Contains(template, "{") {
		template = "{" + template + "}"
	}
	path := jsonpath.New("output").AllowMissingKeys(true)
	if err := path.Parse(template); err != nil {
		return nil, fmt.Errorf("--output: jsonpath: %w", err)
	}
	return path, nil
}

// printTable prints rows in columns; the first row is the heading. Only with wide it prints the columns in more.
func printTable(w io.Writer, rows [][]string, wide bool, more ...string) error {
	for column, title := range slices.Backward(rows[0]) {
		if !wide && slices.Contains(more, title) {
			for i := range rows {
				rows[i] = slices.Delete(rows[i], column, column+1)
			}
		}
	}
	return cli.Table(w, rows)
}

// printAs prints a value in one of dataFormats.
func printAs(w io.Writer, format string, v any) error {
	switch format {
	case "json":
		return cli.JSON(w, v)
	case "yaml":
		text, err := yaml.Marshal(v)
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	}
	path, err := parseJSONPath(strings.TrimPrefix(format, jsonPath))
	if err != nil {
		return err
	}
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var fields any // by their names in JSON
	if err := json.Unmarshal(text, &fields); err != nil {
		return err
	}
	if err := path.Execute(w, fields); err != nil {
		return fmt.Errorf("--output: jsonpath: %w", err)
	}
	fmt.Fprintln(w)
	return nil
}
