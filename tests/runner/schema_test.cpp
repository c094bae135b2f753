// The JSON Schema against the loader: an editor should say what trainrun will say.

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "runner/loggers/loggers.h"
#include "runner/model/recipe_loader.h"
#include "runner/recipe/recipe_schema.h"
#include "runner/recipe/yaml.h"
#include "runner/report/reference.h"
#include "tests/doctest.h"
#include "tests/runner/recipe_support.h"
#include "tests/sanitizers.h"

#define VALIJSON_USE_EXCEPTIONS 1
#include <valijson/adapters/nlohmann_json_adapter.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validation_results.hpp>
#include <valijson/validator.hpp>

using namespace trainrun;        // NOLINT(google-build-using-namespace)
using namespace trainrun::test;  // NOLINT(google-build-using-namespace)
using nlohmann::json;

namespace {

constexpr const char* kSchema = "schemas/recipe.schema.json";
constexpr const char* kMetaSchema = "tests/runner/json_schema_draft_07.json";
/// A bad recipe's line: what is wrong with it is nothing that JSON Schema can express.
constexpr const char* kAccepted = "# schema: accepts";

// Under AddressSanitizer valijson takes minutes, and it is not valijson that the sanitizers are to look at: there every
// eighth recipe and component is enough. The loader reads all of them in recipes_test.cpp.
constexpr size_t kEvery = kIsSanitized ? 8 : 1;

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  REQUIRE_MESSAGE(file, path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// What a plain scalar is to a YAML parser of JavaScript: the core schema of YAML 1.2, numbers as doubles.
json plain_scalar(const Value& value) {
  static const std::regex number("[-+]?([.][0-9]+|[0-9]+([.][0-9]*)?)([eE][-+]?[0-9]+)?|0x[0-9a-fA-F]+");
  static const std::regex octal("0o[0-7]+");
  static const std::regex infinity("[-+]?[.](inf|Inf|INF)");
  static const std::regex not_a_number("[.](nan|NaN|NAN)");
  const std::string& text = value.text();
  const auto is = [&](const std::regex& form) { return std::regex_match(text, form); };
  if (value.scalar_type() == ScalarType::kNull) return nullptr;
  if (value.scalar_type() == ScalarType::kBool) return text[0] == 't' || text[0] == 'T';
  if (is(infinity)) return text[0] == '-' ? -INFINITY : INFINITY;
  if (is(not_a_number)) return NAN;
  if (is(octal)) return std::strtoll(text.c_str() + 2, nullptr, 8);
  if (!is(number)) return text;
  const double parsed = std::strtod(text.c_str(), nullptr);
  if (!std::isfinite(parsed) || std::floor(parsed) != parsed) return parsed;
  constexpr double kLimit = 9223372036854775808.0;  // 2^63: valijson's integers end there, JavaScript's do not
  if (std::abs(parsed) >= kLimit) return parsed > 0 ? INT64_MAX : INT64_MIN;
  return static_cast<int64_t>(parsed);  // to JSON Schema, 2.0 is an integer
}

/// What an editor checks: the recipe as written, before bases and references.
json as_an_editor_reads(const Value& value) {
  json result;
  switch (value.kind()) {
    case Value::Kind::kNull:
      break;
    case Value::Kind::kScalar:
      return value.quoted() ? json(value.text()) : plain_scalar(value);
    case Value::Kind::kList:
      result = json::array();
      for (const Value& item : value.items()) result.push_back(as_an_editor_reads(item));
      break;
    case Value::Kind::kMap:
      result = json::object();
      for (const Value::Entry& entry : value.entries()) result[entry.key] = as_an_editor_reads(entry.value);
      break;
  }
  return result;
}

json parse_as_an_editor(const std::string& yaml) {
  std::vector<Problem> ignored;  // the loader's to judge
  return as_an_editor_reads(parse_yaml(yaml, std::make_shared<const std::string>("recipe"), ignored));
}

/// A compiled JSON Schema.
class Validator {
 public:
  explicit Validator(const json& schema) {
    const valijson::adapters::NlohmannJsonAdapter adapter(schema);
    valijson::SchemaParser(valijson::SchemaParser::kDraft7).populateSchema(adapter, schema_);
  }

  /// What is wrong with `document`, a line each; "" for nothing.
  std::string faults(const json& document) const {
    valijson::ValidationResults results;
    const valijson::adapters::NlohmannJsonAdapter adapter(document);
    const bool valid = valijson::Validator(valijson::Validator::kStrongTypes).validate(schema_, adapter, &results);
    CHECK(valid == (results.numErrors() == 0));
    std::string lines;
    for (const auto& error : results) {
      for (const std::string& step : error.context) lines += step;
      lines += ": " + error.description + "\n";
    }
    return lines;
  }

 private:
  valijson::Schema schema_;
};

/// `recipe` with `value` at `pointer`; what leads there is made.
json with_value(json recipe, const std::string& pointer, const json& value) {
  recipe[json::json_pointer(pointer)] = value;
  return recipe;
}

const Validator& recipe_validator() {
  static const Validator validator(json::parse(text_of(kSchema)));
  return validator;
}

std::string faults_of_the_loader(const std::string& path) {
  Catalog& catalog = catalog_of_the_program();
  try {
    load_recipe(path, {}, catalog);
  } catch (const RecipeError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("the checked-in schema is the one that the program makes") {
  CHECK_MESSAGE(json::parse(text_of(kSchema)) == recipe_schema(catalog_of_the_program()), "run tools/generate");
}

TEST_CASE("the schema is one by the meta-schema of its draft") {
  const json schema = json::parse(text_of(kSchema));
  const json meta_schema = json::parse(text_of(kMetaSchema));
  CHECK(schema["$schema"] == meta_schema["$id"]);
  const Validator validator(meta_schema);
  CHECK(validator.faults(schema) == "");
  json wrong = schema;
  wrong["definitions"]["recipe"]["properties"]["seed"] = {{"type", "strng"}};
  CHECK(validator.faults(wrong) != "");
}

TEST_CASE("the schema and the loader agree on every recipe, but for faults that no schema can express") {
  size_t num_recipes = 0;
  size_t num_refused = 0;
  for (const char* folder : {"tests/recipes/invalid", "tests/recipes/valid", "recipes"}) {
    for (const std::string& path : recipes_in(folder)) {
      if (!has_its_data(path)) continue;
      CAPTURE(path);
      if (num_recipes++ % kEvery != 0) continue;
      const std::string yaml = text_of(path);
      const std::string loader = faults_of_the_loader(path);
      const std::string schema = recipe_validator().faults(parse_as_an_editor(yaml));
      CAPTURE(loader);
      CAPTURE(schema);
      if (yaml.find(kAccepted) != std::string::npos) {
        CHECK_MESSAGE(!loader.empty(), "the recipe is good: it needs no mark");
        CHECK_MESSAGE(schema.empty(), "the schema refuses this after all: take the mark away");
      } else {
        CHECK(schema.empty() == loader.empty());
        num_refused += schema.empty() ? 0 : 1;
      }
    }
  }
  CHECK(num_recipes >= 60);
  CHECK(num_refused >= 60 / kEvery);
}

TEST_CASE("the schema accepts every component's example in the reference, and no parameter besides its own") {
  const std::map<std::string, std::string> places = {
      {"layer", "/model/layers/0"},   {"loss", "/loss"},
      {"metric", "/metrics/0"},       {"dataset", "/dataset/train"},
      {"optimizer", "/optimizer"},    {"transform", "/dataset/transforms/0"},
      {"scheduler", "/scheduler"},    {"logger", "/logging/report_to/0"},
      {"initializer", "/model/init"}, {"comm_hook", "/distributed/comm_hook"},
      {"callback", "/callbacks/0"},   {"adapter", "/model/adapters"}};
  const json recipe = parse_as_an_editor(text_of("tests/recipes/valid/minimal.yaml"));
  size_t num_components = 0;
  for (const KindReference& kind : kinds_of(catalog_of_the_program())) {
    for (const ComponentReference& component : kind.components) {
      if (num_components++ % kEvery != 0) continue;
      const std::string example = example_of(component);
      CAPTURE(example);
      json used = parse_as_an_editor(example);
      CHECK(recipe_validator().faults(with_value(recipe, places.at(kind.kind), used)) == "");
      if (used.is_string()) used = {{"type", used}};
      used["no_such_parameter"] = 1;
      CHECK(recipe_validator().faults(with_value(recipe, places.at(kind.kind), used)) != "");
    }
  }
}

TEST_CASE("a text with a reference may stand for any value, and no other text") {
  const json recipe = parse_as_an_editor(text_of("tests/recipes/valid/minimal.yaml"));
  for (const char* pointer :
       {"/seed", "/deterministic", "/mixed_precision", "/model", "/model/layers", "/model/layers/0", "/loss",
        "/metrics", "/model/layers/1/out_features", "/model/layers/1/type", "/metrics/0", "/dataset/train/split",
        "/training", "/training/max_steps", "/optimizer", "/scheduler", "/checkpoint/every", "/logging/report_to/0"}) {
    CAPTURE(pointer);
    CHECK(recipe_validator().faults(with_value(recipe, pointer, "${env:SOMETHING:-x}")) == "");
    CHECK(recipe_validator().faults(with_value(recipe, pointer, "$ {x}")) != "");
  }
  CHECK(recipe_validator().faults(with_value(recipe, "/mixed_precision", "${kind}16")) == "");  // a text, put together
  CHECK(recipe_validator().faults(with_value(recipe, "/seed", "1${digits}")) != "");            // which is no number
  CHECK(recipe_validator().faults(with_value(recipe, "/mixed_precision", "$${literally}")) != "");  // no reference
}

TEST_CASE("of a value of the wrong type the schema says that the type is wrong, and nothing of references") {
  const json recipe = parse_as_an_editor(text_of("tests/recipes/valid/minimal.yaml"));
  const Validator validator(recipe_schema(catalog_of_the_program()));
  struct Case {
    const char* pointer;
    json value;
  };
  const Case cases[] = {
      {"/seed", "fast"},
      {"/seed", 1.5},
      {"/optimizer/lr", "fast"},
      {"/deterministic", "maybe"},
      {"/training/max_steps", "many"},
      {"/training", 5},
      {"/model/layers", "Linear"},
      {"/loss", 5},
      {"/checkpoint/every", json::array()},
      {"/optimizer", 5},
  };
  json base = recipe;
  base["optimizer"] = {{"type", "SGD"}, {"lr", 0.1}};
  for (const Case& wrong : cases) {
    CAPTURE(wrong.pointer);
    const std::string faults = validator.faults(with_value(base, wrong.pointer, wrong.value));
    CAPTURE(faults);
    CHECK(faults.find("'type' constraint") != std::string::npos);
    CHECK(faults.find("pattern") == std::string::npos);
    CHECK(faults.find("regex") == std::string::npos);
  }
}

TEST_CASE("the schema writes whole numbers as error messages do") {
  const std::string schema = recipe_schema(catalog_of_the_program()).dump();
  CHECK(schema.find("\"minimum\":1,") != std::string::npos);
  CHECK_FALSE(std::regex_search(schema, std::regex("\"(exclusiveM|m)(in|ax)imum\":-?[0-9]+[.]0[,}]")));
}

TEST_CASE("an editor reads plain scalars by YAML 1.2") {
  const json expected = json::parse(R"({"i": 12, "plus": 4, "f": 0.001, "whole": 1000, "dot": 0.5, "t": true, "n": null,
      "no": "no", "leading": 10, "octal": 8, "hexadecimal": 31, "s": "1", "l": [1, "a"], "e": "", "none": null,
      "time": "1:30", "version": "1.2.3"})");
  CHECK(parse_as_an_editor(
            "{i: 12, plus: +4, f: 1e-3, whole: 1e3, dot: .5, t: True, n: ~, no: no, leading: 010, octal: 0o10, "
            "hexadecimal: 0x1F, s: '1', l: [1, a], e: '', none: , time: 1:30, version: 1.2.3}") == expected);
  CHECK(std::isnan(parse_as_an_editor(".nan").get<double>()));
  CHECK(parse_as_an_editor("-.inf").get<double>() == -INFINITY);
  CHECK(parse_as_an_editor("1e400").get<double>() == INFINITY);
  CHECK(parse_as_an_editor("99999999999999999999").is_number_integer());
}
