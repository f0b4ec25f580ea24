package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"regexp"
	"strings"
	"testing"
)

const (
	lineMax     = 120 // characters of a line of Markdown, as editors and reviews show it
	sentenceMax = 40  // words of a sentence of Markdown
)

// retired are words that docs/glossary.md replaces, with the word to use.
var retired = []struct {
	pattern *regexp.Regexp
	use     string
}{
	{regexp.MustCompile(`(?i)\b(tells?|told|telling) of\b`), "report, export"},
	{regexp.MustCompile(`\b[Nn]obody\b`), "no pod, no node, unknown identity: name what is missing"},
	{regexp.MustCompile(`(?i)\bwhom\b`), "name the thing"},
	{regexp.MustCompile(`(?i)\broom for\b`), "capacity, max entries"},
	{regexp.MustCompile(`(?i)\bto be had\b`), "available"},
	{regexp.MustCompile(`(?i)\bwhich cannot be\b`), "internal error"},
	{regexp.MustCompile(`(?i)\b(in|into) force\b`), "applied, enforced"},
	{regexp.MustCompile(`(?i)\bthe world\b`), "external"},
	{regexp.MustCompile(`(?i)\bwith commas\b`), "comma-separated"},
	{regexp.MustCompile(`(?i)\bjudge[sd]?\b|\bjudging\b`), "evaluate, check"},
	{regexp.MustCompile(`(?i)\bsettle[sd]?\b`), "flush, coalesce"},
	{regexp.MustCompile(`(?i)contender`), "network (under test)"},
	{regexp.MustCompile(`(?i)inquir(y|ies)`), "policy context"},
	{regexp.MustCompile(`(?i)young_?session|\byoung\b`), "ct_new"},
	{regexp.MustCompile(`(?i)pushed ?out\b`), "evicted"},
	{regexp.MustCompile(`(?i)judgement`), "decision"},
	{regexp.MustCompile(`(?i)in_?force\b`), "active"},
	{regexp.MustCompile(`FLOW_(OPENED|ANSWERED)\b|FlowEvent(Opened|Answered)\b`), "FLOW_NEW, FLOW_REPLIED"},
	{regexp.MustCompile(`IdWorld|WorldPort|newWorld|OnePlace|goesOn\b|\bfunc Test\w*(Sessions?|Young|Told|World|Unanswered)([A-Z]\w*)?\(`), "external, slot, progress, entry, reported, unreplied"},
	{regexp.MustCompile(`POLICED_|\bpoliced?_pods\b`), "ENFORCE_, policy_pods"},
	{regexp.MustCompile(`\b(PLACE_[A-Z]|SEPARATE\b)`), "HOOK_, GLOBAL_FN"},
	{regexp.MustCompile(`\b(unmasqueraded|untranslatable|connections_full|no_nat_port|unanswered|wrong_pod|(in|e)gress_closed|policy_closed|unknown_fragment)\b`), "the drop reason's name"},
	{regexp.MustCompile(`--(openings-max|connections-max|sessions-max|flows-kept|contenders)\b`), "--nat-pending-max, --nat-max, --conntrack-max, --flows-buffer, --networks"},
}

// checkedWords are the kinds of files that people read. wordsApart are files with other people's text, data, or this list:
// the images of the testbed have an /etc/passwd, with the user nobody.
var (
	checkedWords = regexp.MustCompile(`\.(md|go|c|h|ya?ml|sh|tpl)$|(^|/)(Makefile|Dockerfile)$`)
	wordsApart   = regexp.MustCompile(`^bpf/headers/|_bpfel\.go$|/testdata/|^LICENSES/|^docs/reference/|^docs/(glossary\.md|words_test\.go)$|^test/kubernetes/images/extra\.sh$`)
)

// TestWords looks for retired words in all sources and pages.
func TestWords(t *testing.T) {
	all := make([]string, len(retired))
	for i, word := range retired {
		all[i] = "(?:" + word.pattern.String() + ")"
	}
	anyRetired := regexp.MustCompile(strings.Join(all, "|")) // one pass over a file that has none
	read := 0
	for _, name := range tracked(t) {
		if !checkedWords.MatchString(name) || wordsApart.MatchString(name) {
			continue
		}
		text, err := os.ReadFile(path.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		read++
		if !anyRetired.Match(text) {
			continue
		}
		line := 0
		for text := range strings.Lines(string(text)) {
			line++
			for _, word := range retired {
				if found := word.pattern.FindString(text); found != "" {
					t.Errorf("%s:%d: %q is retired: %s", name, line, found, word.use)
				}
			}
		}
	}
	if read < 500 {
		t.Errorf("only %d files were read: the pattern is wrong", read)
	}
}

// tracked gives the paths of all files that git tracks and the working tree has.
func tracked(t *testing.T) (names []string) {
	t.Helper()
	list := exec.CommandContext(t.Context(), "git", "ls-files", "-z")
	list.Dir = ".."
	out, err := list.Output()
	if err != nil {
		t.Fatalf("list files: %v", err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if _, err := os.Stat(path.Join("..", name)); err == nil {
			names = append(names, name)
		}
	}
	return names
}

// madePages are made from results and from the code, and LICENSES quotes.
var madePages = regexp.MustCompile(`^../(docs/(measured|reference)|LICENSES)/`)

// TestLength bounds lines and sentences of Markdown. Code blocks and tables are free, and so are lines that a link makes long.
func TestLength(t *testing.T) {
	for name, content := range pages(t) {
		if madePages.MatchString(name) {
			continue
		}
		for _, problem := range long(content) {
			t.Errorf("%s:%s", name, problem)
		}
	}
}

var (
	sentenceEnd = regexp.MustCompile(`[.:;!?]\)?(\s|$)`)
	linkTarget  = regexp.MustCompile(`\]\([^)]*\)`)
)

// long gives a problem for each line and each sentence of a page that is too long, with its line.
func long(page string) (problems []string) {
	var paragraph strings.Builder
	start, code := 0, false
	finish := func() {
		for _, sentence := range sentenceEnd.Split(paragraph.String(), -1) {
			if n := len(strings.Fields(sentence)); n > sentenceMax {
				problems = append(problems, fmt.Sprintf("%d: a sentence of %d words, at most %d: %.60s…", start, n, sentenceMax, strings.TrimSpace(sentence)))
			}
		}
		paragraph.Reset()
	}
	number := 0
	for line := range strings.Lines(page) {
		number++
		line = strings.TrimRight(line, "\n")
		text := strings.TrimSpace(line)
		if strings.HasPrefix(text, "```") {
			code = !code
		}
		if code || strings.HasPrefix(text, "|") || strings.HasPrefix(text, "```") {
			finish()
			continue
		}
		if n := len([]rune(linkTarget.ReplaceAllString(line, "]"))); n > lineMax {
			problems = append(problems, fmt.Sprintf("%d: %d characters, at most %d", number, n, lineMax))
		}
		if text == "" || strings.HasPrefix(text, "#") || strings.HasPrefix(text, "* ") || strings.HasPrefix(text, "<!--") {
			finish()
		}
		if paragraph.Len() == 0 {
			start = number
		}
		paragraph.WriteString(text + " ")
	}
	finish()
	return problems
}

// TestLong has the cases that the bounds exist for.
func TestLong(t *testing.T) {
	word := strings.Repeat("word ", sentenceMax)
	for _, c := range []struct {
		page string
		want int
	}{
		{"Short.\n", 0},
		{strings.Repeat("x", lineMax+1) + "\n", 1},
		{"```\n" + strings.Repeat("x", lineMax+1) + "\n```\n", 0},
		{"| " + strings.Repeat("x", lineMax+1) + " |\n", 0},
		{strings.ReplaceAll(word, "word word word word word ", "word word word word word\n") + "end.\n", 1},
		{strings.ReplaceAll(word, "word word word word word ", "word word word word word\n") + "\nend.\n", 0},
	} {
		if got := long(c.page); len(got) != c.want {
			t.Errorf("%q: %v, want %d problems", c.page, got, c.want)
		}
	}
}
