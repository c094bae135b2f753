#include "registry/language/interpolation.h"

#include <doctest/doctest.h>

namespace trainrun {
namespace {

using Kind = TextPiece::Kind;

Value quoted(const std::string& content) { return Value::scalar(content, /*quoted=*/true, {}); }
Value plain(const std::string& content) { return Value::scalar(content, /*quoted=*/false, {}); }

std::string path_error(const std::string& path) {
  std::string error;
  CHECK_FALSE(parse_path(path, error));
  return error;
}

/// "literal a|reference b": the pieces of a text.
std::string pieces(const std::string& content) {
  std::vector<std::string> words;
  for (const TextPiece& piece : parse_pieces(content)) {
    switch (piece.kind) {
      case Kind::kLiteral:
        words.push_back("'" + piece.text + "'");
        break;
      case Kind::kReference:
        words.push_back("reference " + piece.text);
        break;
      case Kind::kExpression:
        words.push_back("expression " + piece.text);
        break;
      case Kind::kEnvironment:
        words.push_back("environment " + piece.text + (piece.fallback ? " or '" + *piece.fallback + "'" : ""));
        break;
      case Kind::kMalformed:
        words.push_back("malformed " + piece.text);
        break;
    }
  }
  return join(words, " | ");
}

}  // namespace

TEST_CASE("a path is keys and indices, and is written as it is read") {
  std::string error;
  const Path path = parse_path("model.layers[0][12].out_channels", error).value_or(Path());
  REQUIRE(path.size() == 5);
  CHECK(path[1].key == "layers");
  CHECK(path[1].offset == 6);
  CHECK(path[3].is_index);
  CHECK(path[3].index == 12);
  CHECK(path[3].offset == 15);
  CHECK(path_text(path) == "model.layers[0][12].out_channels");
  CHECK(path_text(path, 3) == "model.layers[0]");
  CHECK(path_text(parse_path("1.true.a-b", error).value_or(Path())) == "1.true.a-b");
}

TEST_CASE("what is no path is refused with a reason") {
  CHECK(path_error("a[-1]") == "'-1' is not an index; an index is a number that counts from 0");
  CHECK(path_error("a[x]").find("'x' is not an index") == 0);
  CHECK(path_error("a[]").find("'' is not an index") == 0);
  CHECK(path_error("a[1e3]").find("'1e3' is not an index") == 0);
  CHECK(path_error("a[99999999999999999999]").find("is not an index") != std::string::npos);
  CHECK(path_error("a[1") == "'[' without ']'");
  CHECK(path_error("") == "a name is missing");
  for (const char* path : {".", ".a", "a.", "a..b", "a b", "[0]", "a[0]b", "a]", "a:b", "${a}"}) {
    INFO(path);
    CHECK(path_error(path).find("is not a path") != std::string::npos);
  }
}

TEST_CASE("a text is split into literals and references") {
  CHECK(pieces("") == "");
  CHECK(pieces("a$b{c}") == "'a$b{c}'");
  CHECK(pieces("runs/${name}/x") == "'runs/' | reference name | '/x'");
  CHECK(pieces("${a}${ b.c[0] }") == "reference a | reference b.c[0]");
  CHECK(pieces("${env:HOME}") == "environment HOME");
  CHECK(pieces("${env:A:-}") == "environment A or ''");
  CHECK(pieces("${env:A:-tcp://x:1}") == "environment A or 'tcp://x:1'");
  CHECK(pieces("${env:A:-${env:B:-{c}}}/d") == "environment A or '${env:B:-{c}}' | '/d'");
}

TEST_CASE("$${ is a literal ${, and escaping is undone by reading") {
  CHECK(pieces("$${a}") == "'${a}'");
  CHECK(pieces("a$$b") == "'a$$b'");
  CHECK(pieces("$$${a}") == "'$${a}'");
  for (const char* content : {"${", "$${", "$$${", "a${b}c$", "${a}${b}", "$", "{}", "${${", "$ {"}) {
    const std::string escaped = escape_references(content);
    INFO(escaped);
    CHECK(pieces(escaped) == "'" + std::string(content) + "'");
  }
}

TEST_CASE("malformed references say what to write") {
  CHECK(pieces("a${b") == "'a' | malformed '${' without '}'; write $${ for a literal ${");
  CHECK(pieces("${}") == "malformed a name is missing");
  CHECK(pieces("${HOME:-x}") == "malformed write ${env:HOME:-x}");
  CHECK(pieces("${env:}") == "malformed '' is not the name of an environment variable");
  CHECK(pieces("${env:A-B}") == "malformed 'A-B' is not the name of an environment variable");
  CHECK(pieces("${a[-1]}").find("malformed '-1' is not an index") == 0);
}

TEST_CASE("a scalar that is just a parameter becomes its value, at the place where that was written") {
  const auto file = std::make_shared<const std::string>("a.yaml");
  const Value body = Value::map({{"channels", {}, Value::scalar("${c}", true, {file, 3, 7})},
                                 {"sizes", {}, Value::list({plain("${list}"), plain("3")}, {})}},
                                {});
  const Value list = Value::list({Value::scalar("1", false, {file, 9, 9})}, {file, 9, 8});
  const Value result = substitute(body, {{"c", Value::scalar("64", false, {file, 8, 5})}, {"list", list}});
  CHECK(result.find("channels")->scalar_type() == ScalarType::kInteger);
  CHECK(result.find("channels")->place().to_string() == "a.yaml:8:5");
  CHECK(result.find("sizes")->items()[0].items()[0].place().to_string() == "a.yaml:9:9");
}

TEST_CASE("a parameter within a text is inserted, and the result is a string") {
  const Value result = substitute(plain("conv${i}"), {{"i", plain("1")}});
  CHECK(result.text() == "conv1");
  CHECK(result.quoted());
  CHECK(substitute(plain("${i}${i}"), {{"i", plain("1")}}).scalar_type() == ScalarType::kString);
}

TEST_CASE("references to anything else stay, escapes are undone once, values are not looked into") {
  CHECK(substitute(plain("${other}"), {{"i", plain("1")}}).text() == "${other}");
  CHECK(substitute(plain("${other}-${i}"), {{"i", plain("1")}}).text() == "${other}-1");
  CHECK(substitute(quoted("$${i}"), {{"i", plain("1")}}).text() == "${i}");
  CHECK(substitute(plain("${i}"), {{"i", quoted("${i}")}}).text() == "${i}");
  CHECK(substitute(plain("a"), {{"a", plain("1")}}).text() == "a");
}

TEST_CASE("a list, mapping or null within a text is a problem") {
  std::vector<Problem> problems;
  const std::map<std::string, Value> parameters = {{"l", Value::list({}, {})}, {"n", Value::null({})}};
  CHECK(substitute(plain("a${l}"), parameters, &problems).text() == "a${l}");
  substitute(plain("a${n}"), parameters, &problems);
  REQUIRE(problems.size() == 2);
  CHECK(problems[0].message == "${l} is a list and cannot be part of a string");
  CHECK(problems[1].message == "${n} is null and cannot be part of a string");
}

TEST_CASE("with_place moves a value but not what is inside it") {
  const auto file = std::make_shared<const std::string>("a.yaml");
  const Value inner = Value::scalar("x", true, {file, 1, 2});
  for (const Value& value : {Value::null({}), inner, Value::list({inner}, {}), Value::map({{"k", {}, inner}}, {})}) {
    const Value moved = with_place(value, {file, 5, 6});
    CHECK(same_meaning(moved, value));
    CHECK(moved.place().to_string() == "a.yaml:5:6");
  }
  CHECK(with_place(Value::list({inner}, {}), {file, 5, 6}).items()[0].place().to_string() == "a.yaml:1:2");
}

}  // namespace trainrun
