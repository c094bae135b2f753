#include "runner/recipe/yaml.h"

#include <string>

#include "registry/language/interpolation.h"
#include "runner/base/limits.h"
#include "tests/doctest.h"
#include "tests/runner/recipe_support.h"
#include "tests/runner/yaml_support.h"

namespace trainrun {
namespace {

using test::FaultyRecipe;
using test::node_at;
using test::parse;
using test::parse_good;
using test::Parsed;

std::string errors(const std::string& text) { return parse(text).errors(); }

std::string place_of(const Value& value) {
  return std::to_string(value.place().line) + ":" + std::to_string(value.place().column);
}

std::string repeat(const std::string& text, size_t count) {
  std::string result;
  for (size_t i = 0; i < count; ++i) result += text;
  return result;
}

}  // namespace

TEST_CASE("every node knows its line and column, every entry those of its key") {
  const Value value = parse_good(
      "name: mnist\n"
      "model:\n"
      "  layers:\n"
      "    - {type: Conv2d, kernel_size: [3, 5]}\n"
      "    - ReLU\n");
  CHECK(value.place().to_string() == "a.yaml:1:1");
  CHECK(place_of(node_at(value, "name")) == "1:7");
  CHECK(place_of(node_at(value, "model")) == "3:3");
  CHECK(value.entries()[1].key_place.to_string() == "a.yaml:2:1");
  CHECK(place_of(node_at(value, "model.layers[0]")) == "4:7");
  CHECK(place_of(node_at(value, "model.layers[0].type")) == "4:14");
  CHECK(place_of(node_at(value, "model.layers[0].kernel_size")) == "4:35");
  CHECK(place_of(node_at(value, "model.layers[0].kernel_size[1]")) == "4:39");
  CHECK(place_of(node_at(value, "model.layers[1]")) == "5:7");
}

TEST_CASE("columns count characters, not bytes") {
  const Value value = parse_good("é: ü\nx: {größe: 1, b: 2}\n");
  CHECK(place_of(node_at(value, "é")) == "1:4");
  CHECK(place_of(node_at(value, "x.größe")) == "2:12");
  CHECK(place_of(node_at(value, "x.b")) == "2:18");
}

TEST_CASE("an absent value is placed at its key or its dash") {
  const Value value = parse_good("a:\nb:\n  -\n  # comment\n  - - \n    - x\nc:\n");
  CHECK(node_at(value, "a").is_null());
  CHECK(place_of(node_at(value, "a")) == "1:1");
  CHECK(place_of(node_at(value, "b[0]")) == "3:3");
  CHECK(node_at(value, "b[1][0]").is_null());
  CHECK(place_of(node_at(value, "b[1][0]")) == "5:5");
  CHECK(place_of(node_at(value, "c")) == "7:1");
}

TEST_CASE("scalars keep their text and whether they were quoted") {
  const Value value = parse_good(
      "plain: 1e-3\nsingle: '1'\ndouble: \"a\\tb\"\nliteral: |\n  x\n  y\nfolded: >-\n  x\n  y\n"
      "tagged: !!str 12\nint: !!int 12\nno: no\noctal: 010\n");
  CHECK(node_at(value, "plain").text() == "1e-3");
  CHECK_FALSE(node_at(value, "plain").quoted());
  CHECK(node_at(value, "single").quoted());
  CHECK(node_at(value, "double").text() == "a\tb");
  CHECK(node_at(value, "double").quoted());
  CHECK(node_at(value, "literal").text() == "x\ny\n");
  CHECK(node_at(value, "literal").quoted());
  CHECK(node_at(value, "folded").text() == "x y");
  CHECK(node_at(value, "folded").quoted());
  CHECK(node_at(value, "tagged").quoted());
  CHECK_FALSE(node_at(value, "int").quoted());
  CHECK(node_at(value, "no").scalar_type() == ScalarType::kString);
  CHECK(node_at(value, "octal").scalar_type() == ScalarType::kString);
}

TEST_CASE("every escape gives well-formed UTF-8") {
  const Value value = parse_good("\"\\N|\\_|\\L|\\P|\\x85|\\u00e9|\\U0001F600|\\0|\\e|\\/\"");
  CHECK(value.text() == std::string("\xC2\x85|\xC2\xA0|\xE2\x80\xA8|\xE2\x80\xA9|\xC2\x85|é|😀|") + '\0' + "|\x1B|/");
}

TEST_CASE("null is written ~, null or nothing, and as text in quotes") {
  const Value value = parse_good("[~, null, Null, NULL, 'null', !!null null, !!str null, nULL]");
  for (size_t i = 0; i < 4; ++i) CHECK(value.items()[i].is_null());
  CHECK(value.items()[4].text() == "null");
  CHECK(value.items()[5].is_null());
  CHECK(value.items()[6].is_scalar());
  CHECK(value.items()[7].text() == "nULL");
  CHECK(parse_good("~").is_null());
}

TEST_CASE("keys are taken as their text") {
  const Value value = parse_good("1: a\ntrue: b\n1.5: c\n'null': d\n\"x y\": e\n");
  CHECK(value.entries()[0].key == "1");
  CHECK(value.entries()[1].key == "true");
  CHECK(value.entries()[2].key == "1.5");
  CHECK(value.entries()[3].key == "null");
  CHECK(value.entries()[4].key == "x y");
}

TEST_CASE("keys that are no text are errors") {
  CHECK(errors("null: 1\n") == "a.yaml:1:1: a key must be a string, found null; put it in quotes if it is meant");
  CHECK(errors("a: {~: 1}\n") == "a.yaml:1:5: a: a key must be a string, found null; put it in quotes if it is meant");
  CHECK(errors(": 1\n") == "a.yaml:1:1: a key is missing before the colon");
  CHECK(errors("? [a]\n: b\n") == "a.yaml:1:3: a key must be a string, found a list");
  CHECK(errors("? {a: b}\n: b\n") == "a.yaml:1:3: a key must be a string, found a mapping");
}

TEST_CASE("a duplicate key is an error that names the first one's line") {
  CHECK(errors("a: 1\nb: {c: 2, d: 3, c: 4}\n\na: 5\n") ==
        "a.yaml:2:17: b.c: duplicate key; the first is on line 2\n"
        "a.yaml:4:1: a: duplicate key; the first is on line 1");
  CHECK(errors("l:\n  - {k: 1}\n  - {k: 1, k: 2}\n") == "a.yaml:3:12: l[1].k: duplicate key; the first is on line 3");
  CHECK(errors("1: a\n'1': b\n") == "a.yaml:2:1: 1: duplicate key; the first is on line 1");
}

TEST_CASE("aliases are copies that stand where the alias stands") {
  const Value value = parse_good("a: &x {lr: 1}\nb: *x\nc: [*x, *x]\n&k key: *k\n");
  CHECK(same_meaning(node_at(value, "a"), node_at(value, "b")));
  CHECK(place_of(node_at(value, "b")) == "2:4");
  CHECK(place_of(node_at(value, "b.lr")) == "1:12");
  CHECK(node_at(value, "c").items().size() == 2);
  CHECK(node_at(value, "key").text() == "key");
}

TEST_CASE("an anchor may be set again, and aliases take the last one") {
  const Value value = parse_good("a: &x 1\nb: *x\nc: &x 2\nd: *x\n");
  CHECK(node_at(value, "b").text() == "1");
  CHECK(node_at(value, "d").text() == "2");
}

TEST_CASE("aliases that lead nowhere or to themselves are errors") {
  CHECK(errors("a: *nope\n") == "a.yaml:1:4: no anchor &nope before this alias");
  CHECK(errors("a: &x [1, *x]\n") == "a.yaml:1:11: a[1]: this alias refers to the value it is part of");
  CHECK(errors("a: &x {b: {c: *x}}\n") == "a.yaml:1:15: a.b.c: this alias refers to the value it is part of");
}

TEST_CASE("<< merges mappings: own keys win, then earlier maps") {
  const Value value = parse_good(
      "x: &x {lr: 1, n: 2}\n"
      "y: &y {n: 3, m: 4}\n"
      "one: {<<: *x, lr: 5}\n"
      "late:\n  lr: 5\n  <<: *x\n"
      "many: {<<: [*x, *y, {k: 6}], m: 7}\n");
  CHECK(same_meaning(node_at(value, "one"), parse_good("{lr: 5, n: 2}")));
  CHECK(same_meaning(node_at(value, "late"), parse_good("{lr: 5, n: 2}")));
  CHECK(same_meaning(node_at(value, "many"), parse_good("{lr: 1, n: 2, m: 7, k: 6}")));
  CHECK(place_of(node_at(value, "one.n")) == "1:18");
  CHECK(node_at(value, "many").find("<<") == nullptr);
}

TEST_CASE("a quoted '<<' is an ordinary key") { CHECK(parse_good("'<<': 1\n").entries()[0].key == "<<"); }

TEST_CASE("<< of anything but mappings is an error") {
  CHECK(errors("a: {<<: 1}\n") == "a.yaml:1:9: a.<<: << merges a mapping or a list of mappings, found 1");
  CHECK(errors("a: {<<: [{b: 1}, c]}\n") == "a.yaml:1:18: a.<<: << merges a mapping or a list of mappings, found 'c'");
  CHECK(errors("a: {<<: }\n").find("found null") != std::string::npos);
  CHECK(errors("a: {<<: {b: 1}, <<: {c: 1}}\n") ==
        "a.yaml:1:17: a.<<: a second <<; merge a list of mappings; the first is on line 1");
}

TEST_CASE("expansion is bounded: a billion laughs give one error, at once") {
  std::string laughs = "a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    laughs += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + before;
    for (int j = 1; j < 10; ++j) laughs += ", " + before;
    laughs += "]\n";
  }
  const Parsed parsed = parse(laughs);
  CHECK(parsed.problems.size() == 1);
  CHECK(parsed.errors().find("more than 100000 values once its aliases are expanded") != std::string::npos);
  CHECK(parsed.value.is_null());
}

TEST_CASE("copies of a long text are bounded too") {
  CHECK(errors("a: &a '" + std::string(500'000, 'x') + "'\nb: [" + repeat("*a, ", 100) + "1]\n")
            .find("more than 100000 values") != std::string::npos);
}

TEST_CASE("merged mappings that double each other stay within bounds") {
  std::string text = "m0: &m0 {k: [1, 2, 3, 4, 5, 6, 7, 8]}\n";
  for (int i = 1; i < 40; ++i) {
    const std::string n = std::to_string(i);
    const std::string before = "*m" + std::to_string(i - 1);
    text += "m" + n + ": &m" + n + " {a: {<<: " + before + "}, b: {<<: " + before + "}}\n";
  }
  CHECK(parse(text).problems.size() == 1);
}

TEST_CASE("depth is bounded, also through aliases") {
  CHECK(errors(repeat("[", kMaxRecipeDepth - 1) + "x" + repeat("]", kMaxRecipeDepth - 1)) == "");
  CHECK(
      errors(repeat("[", kMaxRecipeDepth) + "x" + repeat("]", kMaxRecipeDepth)).find("nested deeper than 64 levels") !=
      std::string::npos);
  for (const char* opening : {"[", "{", "[{", "{a: ", "[a: ", "- ", "? ", "[? ", "&a [", "!!seq ["}) {
    INFO(opening);
    const Parsed parsed = parse(repeat(opening, 100'000));
    CHECK(parsed.problems.size() == 1);
    CHECK(parsed.value.is_null());
  }
  std::string deep = "a0: &a0 [[[[[[[[[[x]]]]]]]]]]\n";
  for (int i = 1; i < 10; ++i) {
    deep +=
        "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [[[[[[[[[[*a" + std::to_string(i - 1) + "]]]]]]]]]]\n";
  }
  CHECK(errors(deep).find("nested deeper than 64 levels once its aliases are expanded") != std::string::npos);
}

TEST_CASE("tags other than those of the core schema are errors") {
  CHECK(errors("a: !!python/object:os.system {b: c}\n") == "a.yaml:1:4: a: unknown tag !!python/object:os.system");
  CHECK(errors("a: !Conv2d [1]\n") == "a.yaml:1:4: a: unknown tag !Conv2d");
  CHECK(errors("a: !!int x\n") == "a.yaml:1:4: a: 'x' is not of type int");
  CHECK(errors("a: !!map {b: !!float 1, c: !!seq [!!bool true]}\n") == "");
}

TEST_CASE("a syntax error is a problem with a place and says what to do") {
  const FaultyRecipe cases[] = {
      {"a: [1, 2\n", "a.yaml:1:4: this '[' is never closed"},
      {"a: {b: 1\n", "a.yaml:1:4: this '{' is never closed"},
      {"a: [1, 2\nb: 3\n", "a.yaml:1:4: this '[' is never closed"},
      {"a: {b: 1, c: 2\nd: {e: 3}\n", "a.yaml:1:4: this '{' is never closed"},
      {"a:\n  - {b: 1, c: [3, 4]\n  - d\n", "a.yaml:2:5: this '{' is never closed"},
      {"a: [\n  {b: 1},\n  {c: 2,\n  {d: 3},\n]\ne: 4\n", "a.yaml:3:3: this '{' is never closed"},
      {"a: [\n  {b: 1}\n  {c: 2}\n]\n", "a.yaml:3:3: expected ',' or ']' in the list that opens on line 1, found '{'"},
      {"a: {b: 'it''s }', c: \"]\" # }\nd: 1\n", "a.yaml:1:4: this '{' is never closed"},
      {"a: {b: 1 c: 2}\n", "a.yaml:1:11: expected ',' or '}' in the mapping that opens on line 1, found ':'"},
      {"a: [1}\n", "a.yaml:1:6: '}' closes nothing here"},
      {"a: ]\n", "a.yaml:1:4: ']' closes nothing here"},
      {"a: 'x\nb: 2\n", "a.yaml:1:4: a: this quote is never closed"},
      {"a: 1\nb: \"x", "a.yaml:2:4: b: this quote is never closed"},
      {"a: 1\nb: &b 'it''s", "a.yaml:2:7: b: this quote is never closed"},
      {"a: b: c\n", "a.yaml:1:5: no mapping can begin here; check the indentation, and quote a text that holds ': '"},
      {"a: 1\nb:2\nc: 3\n", "a.yaml:2:1: there is no space after the colon of 'b:2'"},
      {"a: {lr:0.1, b: 2}\n", "a.yaml:1:5: a.lr:0.1: there is no space after the colon of 'lr:0.1'"},
      {"a: [1, , 2]\n", "a.yaml:1:8: a[1]: there is nothing before this comma"},
      {"a: {b: 1, , c: 2}\n", "a.yaml:1:11: a: there is nothing before this comma"},
      {"a:\n    b: 1\n  c: 2\n", "a.yaml:3:3: this line fits nothing above it; check its indentation"},
      {"  a: 1\nb: 2\n", "a.yaml:2:1: text after the end of the value above; check the indentation"},
      {"a: 'b' c\n", "a.yaml:1:8: this goes on after a value that is complete; is a quote or a comma missing?"},
      {"a: @x\n", "a.yaml:1:4: a plain string cannot begin with '@'; put it in quotes"},
      {"a: - b\n", "a.yaml:1:4: a list cannot begin here; begin it on the next line, or write [a, b]"},
      {"a: \"\\d\"\n",
       "a.yaml:1:7: unknown escape in a text in double quotes; use single quotes, or write \\\\ for a backslash"},
      {"a: {lr: ${x}}\n", "a.yaml:1:9: within { } or [ ], a text with ${…} must be in quotes: \"${…}\""},
      {"a: [${x}]\n", "a.yaml:1:5: within { } or [ ], a text with ${…} must be in quotes: \"${…}\""},
  };
  for (const FaultyRecipe& syntax_case : cases) {
    INFO(syntax_case.input);
    CHECK(errors(syntax_case.input) == syntax_case.expected);
  }
}

TEST_CASE("a blank that is none is named, but not in quotes, comments and block texts") {
  const std::string stands = " stands here; write an ordinary space, or put the text in quotes if it is meant";
  const FaultyRecipe cases[] = {
      {"a:\u00A0{b: 1}\n", "a.yaml:1:3: a non-breaking space (U+00A0)" + stands},
      {"a:\n  -\u00A0b\n", "a.yaml:2:4: a non-breaking space (U+00A0)" + stands},
      {"a:\n\u3000b: 1\n", "a.yaml:2:1: an ideographic space (U+3000)" + stands},
      {"a: b\u200B\n", "a.yaml:1:5: a zero-width space (U+200B)" + stands},
      {"a: {b: 1,\u2003c: 2}\n", "a.yaml:1:10: a typographic space (U+2003)" + stands},
  };
  for (const FaultyRecipe& blank : cases) {
    INFO(blank.input);
    CHECK(errors(blank.input) == blank.expected);
  }
  CHECK(errors("a: 'b\u00A0c' # \u00A0\nd: \"\u00A0\"\ne: |\n  f\u00A0g\n\n  h\u00A0\ni: 1\n") == "");
}

TEST_CASE("tabs in the indentation are errors, elsewhere they are blanks") {
  const std::string expected = "a tab in the indentation; YAML wants spaces";
  CHECK(errors("a:\n\tb: 1\n") == "a.yaml:2:1: " + expected);
  CHECK(errors("a:\n\t- b\n") == "a.yaml:2:1: " + expected);
  CHECK(errors("a:\n  b: 1\n\tc: 2\n") == "a.yaml:3:1: " + expected);
  CHECK(errors("a:\n  b:\n  \tc: 2\n") == "a.yaml:3:3: " + expected);
  CHECK(node_at(parse_good("a:\t1\t# one\nb: [x,\n\ty]\n"), "b[1]").text() == "y");
}

TEST_CASE("a text is one document with something in it") {
  for (const char* text : {"", "\n\n", "# only a comment\n", "---\n", "---\n...\n", "\xEF\xBB\xBF"}) {
    INFO(text);
    CHECK(errors(text) == "a.yaml:1:1: the file is empty; expected a mapping (key: value)");
  }
  CHECK(errors("a: 1\n---\nb: 2\n") == "a.yaml:2:1: a second document begins here; a recipe is one document");
  CHECK(errors("[a] b\n") == "a.yaml:1:5: text after the end of the value above; check the indentation");
  CHECK(node_at(parse_good("%YAML 1.2\n---\na: 1\n...\n"), "a").text() == "1");
}

TEST_CASE("what is not text is refused") {
  CHECK(errors("a: \xFF\n") == "a.yaml:1:4: not UTF-8; save the file as UTF-8");
  CHECK(errors("a: \xC0\xAF\n") == "a.yaml:1:4: not UTF-8; save the file as UTF-8");      // overlong
  CHECK(errors("a: \xED\xA0\x80\n") == "a.yaml:1:4: not UTF-8; save the file as UTF-8");  // a surrogate
  CHECK(errors("ü\nab\xE2\x82") == "a.yaml:2:3: not UTF-8; save the file as UTF-8");      // cut short
  CHECK(errors(std::string("\xFF\xFE") + std::string("a\0", 2)).find("not UTF-8") != std::string::npos);
  CHECK(errors(std::string("a: b\0c\n", 7)) ==
        "a.yaml:1:5: control character U+0000; write it as an escape in double quotes");
  // yaml-cpp takes U+0004 for the end of the file.
  CHECK(errors("a: 1\n\x04: b\n") == "a.yaml:2:1: control character U+0004; write it as an escape in double quotes");
  CHECK(errors(std::string(kMaxRecipeBytes + 1, ' ')).find("larger than 1024 KiB") != std::string::npos);
}

TEST_CASE("a byte order mark and other line breaks are fine") {
  const Value value = parse_good(
      "\xEF\xBB\xBF"
      "a: 1\r\nb: |\r\n  x\r\n  y\r\nc: 3\rd: 4");
  CHECK(place_of(node_at(value, "a")) == "1:4");
  CHECK(node_at(value, "b").text() == "x\ny\n");
  CHECK(place_of(node_at(value, "d")) == "6:4");
}

TEST_CASE("all problems of a file are reported, up to a bound") {
  CHECK(parse("a: 1\na: 2\nb: !x 3\n~: 4\n").problems.size() == 3);
  CHECK(parse("{" + repeat("a: 1, ", 10'000) + "}").problems.size() < 300);
}

}  // namespace trainrun
