#include "registry/language/parameters.h"

#include "registry/kinds/monitor.h"
#include "tests/registry/support.h"

namespace trainrun {

enum class Strength { kNo, kWeak, kStrong };
template <>
struct Words<Strength> {
  static constexpr std::array kWords = {"no", "weak", "strong"};
};

}  // namespace trainrun

using namespace trainrun;        // NOLINT(google-build-using-namespace)
using namespace trainrun::test;  // NOLINT(google-build-using-namespace)

namespace {

struct Sample {
  int64_t count = 3;
  double rate = 0.5;
  bool flag = false;
  std::string word = "no";
  Pair size = 1;
  std::optional<int64_t> limit;
  std::vector<double> numbers;
  std::variant<int64_t, std::string> every = "epoch";
  static void describe(Fields<Sample>& f) {
    f.required("count", &Sample::count).at_least(1);
    f.optional("rate", &Sample::rate).greater_than(0).less_than(1);
    f.optional("flag", &Sample::flag);
    f.optional("word", &Sample::word).one_of({"no", "bf16", "fp16"});
    f.optional("size", &Sample::size).at_least(1);
    f.optional("limit", &Sample::limit).at_least(2);
    f.optional("numbers", &Sample::numbers).at_most(9);
    f.optional("every", &Sample::every).at_least(1).one_of({"epoch"});
  }
};

/// The same parameters as enums and as texts.
struct AsEnums {
  Strength strength = Strength::kWeak;
  std::optional<Strength> other;
  static void describe(Fields<AsEnums>& f) {
    f.optional("strength", &AsEnums::strength).doc("how strong");
    f.optional("other", &AsEnums::other);
  }
};
struct AsTexts {
  std::string strength = "weak";
  std::optional<std::string> other;
  static void describe(Fields<AsTexts>& f) {
    f.optional("strength", &AsTexts::strength).one_of({"no", "weak", "strong"}).doc("how strong");
    f.optional("other", &AsTexts::other).one_of({"no", "weak", "strong"});
  }
};

std::vector<std::string> faults(const std::string& yaml) {
  std::vector<Problem> problems;
  read<Sample>(yaml, catalog(), problems);
  std::vector<std::string> texts;
  for (const Problem& problem : problems) texts.push_back(problem.to_string());
  return texts;
}

std::string only_fault(const std::string& yaml) {
  const auto all = faults(yaml);
  REQUIRE(all.size() == 1);
  return all[0];
}

}  // namespace

TEST_CASE("numbers are read as they are meant, whatever YAML says") {
  const auto section = read<Sample>("{count: 1e3, rate: 1e-3, size: [2, 3], every: 50, numbers: [1, 2.5]}", catalog());
  CHECK(section.count == 1000);
  CHECK(section.rate == 0.001);
  CHECK((section.size[0] == 2 && section.size[1] == 3));
  CHECK(std::get<int64_t>(section.every) == 50);
  CHECK(section.numbers == std::vector<double>{1, 2.5});
  CHECK(read<Sample>("{count: 1, size: 4}", catalog()).size[1] == 4);
  CHECK(!read<Sample>("{count: 1, limit: null}", catalog()).limit);
}

TEST_CASE("'no' is a word where a choice has it, however it is spelled") {
  for (const char* spelling : {"no", "off", "NO", "false", "'no'"}) {
    CHECK(read<Sample>(std::string("{count: 1, word: ") + spelling + "}", catalog()).word == "no");
  }
  CHECK(only_fault("{count: 1, word: fp8}") == "test.yaml:1:18: word: 'fp8' is not one of no, bf16, fp16");
}

TEST_CASE("an enum is read, refused and described as a text with the same choices is") {
  const auto enums = read<AsEnums>("{strength: strong, other: off}", catalog());
  CHECK(enums.strength == Strength::kStrong);
  CHECK(enums.other == Strength::kNo);
  CHECK_FALSE(read<AsEnums>("{other: null}", catalog()).other);
  for (const char* yaml :
       {"{strength: strog}", "{other: strog}", "{strength: 3}", "{strength: true}", "{strength: null}",
        "{strength: [weak]}", "{other: ''}", "{strength: 'null'}", "{other: {}}", "{strength: weak}"}) {
    CAPTURE(yaml);
    std::vector<Problem> of_enums, of_texts;
    read<AsEnums>(yaml, catalog(), of_enums);
    read<AsTexts>(yaml, catalog(), of_texts);
    REQUIRE(of_enums.size() == of_texts.size());
    for (size_t i = 0; i < of_enums.size(); ++i) CHECK(of_enums[i].to_string() == of_texts[i].to_string());
  }
  SchemaContext context{catalog()};
  CHECK(Codec<AsEnums>::schema(context) == Codec<AsTexts>::schema(context));
}

TEST_CASE("JSON has an enum's word") {
  CHECK(nlohmann::json(MonitorMode::kMax) == "max");
  CHECK(nlohmann::json{"eval/loss", MonitorMode::kMin} == nlohmann::json{"eval/loss", "min"});
  CHECK(nlohmann::ordered_json{{"mode", MonitorMode::kMin}}.dump() == R"({"mode":"min"})");
}

TEST_CASE("wrong types and values out of range name the place, what was expected and what was found") {
  CHECK(only_fault("{count: 1.5}") == "test.yaml:1:9: count: expected an integer, found 1.5");
  CHECK(only_fault("{count: '1'}") == "test.yaml:1:9: count: expected an integer, found '1'; write it without quotes");
  CHECK(only_fault("{count: 010}") ==
        "test.yaml:1:9: count: expected an integer, found '010'; write it without the leading zero");
  CHECK(only_fault("{count: 0.5}") == "test.yaml:1:9: count: expected an integer, found 0.5");
  CHECK(only_fault("{count: 1_000}") == "test.yaml:1:9: count: expected an integer, found '1_000'; write 1000");
  CHECK(only_fault("{count: 0}") == "test.yaml:1:9: count: must be >= 1, is 0");
  CHECK(only_fault("{count: 1, rate: 1}") == "test.yaml:1:18: rate: must be > 0 and < 1, is 1");
  CHECK(only_fault("{count: 1, rate: .nan}") == "test.yaml:1:18: rate: expected a number, found '.nan'");
  CHECK(only_fault("{count: 1, flag: yes}") == "test.yaml:1:18: flag: expected true or false, found 'yes'; write true");
  CHECK(only_fault("{count: 1, size: [1, 2, 3]}") ==
        "test.yaml:1:18: size: expected integer or list of 2, found a list of 3");
  CHECK(only_fault("{count: 1, size: [1, 0]}") == "test.yaml:1:18: size: must be >= 1, is 0");
  CHECK(only_fault("{count: 1, numbers: [1, x]}") == "test.yaml:1:25: numbers[1]: expected a number, found 'x'");
  CHECK(only_fault("{count: 1, every: weekly}") == "test.yaml:1:19: every: 'weekly' is not one of epoch, integer");
}

TEST_CASE("every fault is reported, and a misspelled required key only once") {
  CHECK(faults("{rate: 2, flag: 3}").size() == 3);
  CHECK(only_fault("{coumt: 1}") == "test.yaml:1:2: coumt: unknown key; did you mean count?");
}

TEST_CASE("other systems' words are suggestions") {
  CHECK(nearest("learning_rate", {"lr", "betas"}) == "lr");
  CHECK(nearest("epochs", {"num_epochs", "max_steps"}) == "num_epochs");
  CHECK(nearest("kernel_sise", {"kernel_size", "stride"}) == "kernel_size");
  CHECK(nearest("KernelSize", {"kernel_size"}) == "kernel_size");
  CHECK(nearest("banana", {"kernel_size", "stride"}).empty());
}
