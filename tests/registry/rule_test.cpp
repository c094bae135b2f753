#include "registry/language/rule.h"

#include "tests/registry/support.h"

using namespace trainrun;        // NOLINT(google-build-using-namespace)
using namespace trainrun::test;  // NOLINT(google-build-using-namespace)

namespace {

using nlohmann::json;

struct Ruled {
  std::optional<int64_t> steps;
  std::optional<int64_t> epochs;
  double momentum = 0;
  bool nesterov = false;
  std::string name = "plain";
  std::vector<int64_t> stride = {1, 1};
  static void describe(Fields<Ruled>& f) {
    f.optional("steps", &Ruled::steps);
    f.optional("epochs", &Ruled::epochs);
    f.optional("momentum", &Ruled::momentum);
    f.optional("nesterov", &Ruled::nesterov);
    f.optional("name", &Ruled::name);
    f.optional("stride", &Ruled::stride);
    f.either("steps", "epochs");
    f.rule({.when = {the("nesterov").is(true)},
            .all = {the("momentum").is_above(0)},
            .at = "nesterov",
            .message = "needs a momentum above 0, which is {momentum}"});
    f.rule({.all = {the("name").matches("^[a-z]+$")}, .at = "name", .message = "'{name}' has more than letters"});
    f.rule({.when = {the("name").is("same")},
            .all = {the("stride").is_at_most(1)},
            .at = "stride",
            .message = "must be 1 throughout"});
  }
};

struct Undeclared {
  int64_t steps = 1;
  static void describe(Fields<Undeclared>& f) {
    f.optional("steps", &Undeclared::steps);
    f.rule({.all = {the("epochs").is_given()}, .at = "steps", .message = "needs epochs"});
  }
};

std::vector<std::string> faults_of_ruled(const std::string& yaml) {
  std::vector<Problem> problems;
  read<Ruled>(yaml, catalog(), problems);
  std::vector<std::string> texts;
  for (const Problem& problem : problems) texts.push_back(problem.to_string());
  return texts;
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("a rule that is broken is reported at its parameter, or at the mapping where that is not written") {
  CHECK(faults_of_ruled("{steps: 1}").empty());
  CHECK(faults_of_ruled("{epochs: 1, nesterov: true, momentum: 0.9}").empty());
  CHECK(faults_of_ruled("{nesterov: false}") ==
        Texts{"test.yaml:1:1: steps: either steps or epochs must be given, and not both"});
  CHECK(faults_of_ruled("{steps: 1, epochs: 2}") ==
        Texts{"test.yaml:1:20: epochs: either steps or epochs must be given, and not both"});
  CHECK(faults_of_ruled("{steps: 1, nesterov: true}") ==
        Texts{"test.yaml:1:22: nesterov: needs a momentum above 0, which is 0.0"});
  CHECK(faults_of_ruled("{steps: 1, name: a1}") == Texts{"test.yaml:1:18: name: 'a1' has more than letters"});
}

TEST_CASE("a condition on a list of numbers must hold for each of them") {
  CHECK(faults_of_ruled("{steps: 1, name: same}").empty());
  CHECK(faults_of_ruled("{steps: 1, name: same, stride: [1, 2]}") ==
        Texts{"test.yaml:1:32: stride: must be 1 throughout"});
}

TEST_CASE(
    "a rule's schema lets a reference to an environment variable pass, and takes what is not written by its default") {
  const json schema =
      Rule{.when = {the("nesterov").is(true)}, .all = {the("momentum").is_above(0)}, .at = "", .message = ""}.schema(
          [](const std::string& name) { return name == "momentum" ? json(0.0) : json(false); });
  const json interpolation = {{"$ref", "#/definitions/interpolated_text"}};
  CHECK(schema["if"]["required"] == json{"nesterov"});  // false by default
  CHECK(schema["if"]["properties"]["nesterov"]["allOf"][1] == json{{"not", interpolation}});
  CHECK(schema["then"]["required"] == json{"momentum"});  // 0 by default
  CHECK(schema["then"]["properties"]["momentum"]["anyOf"][1] == interpolation);
  const json at_most = Rule{.all = {the("stride").is_at_most(1)}, .at = "", .message = ""}.schema(
      [](const std::string&) { return json{1, 1}; });
  CHECK_FALSE(at_most.contains("required"));
}

TEST_CASE("a pattern is found in a text of any length") {
  const std::string letters(100'000, 'a');
  CHECK(faults_of_ruled("{steps: 1, name: " + letters + "}").empty());
  CHECK(faults_of_ruled("{steps: 1, name: " + letters + "1}") ==
        Texts{"test.yaml:1:18: name: '" + letters + "1' has more than letters"});
}

TEST_CASE("a rule about a parameter that is not declared is a mistake of the program") {
  CHECK_THROWS_AS(Fields<Undeclared>(), std::logic_error);
}
