#include <optional>
#include <string>

#include "registry/language/interpolation.h"
#include "runner/recipe/recipe_source.h"
#include "tests/doctest.h"
#include "tests/runner/recipe_source_support.h"
#include "tests/runner/recipe_support.h"
#include "tests/support.h"

namespace trainrun {
namespace {

using test::check_resolves;
using test::EnvironmentVariable;
using test::errors_of;
using test::FaultyRecipe;
using test::node_at;
using test::parse_good_value;
using test::resolve;

}  // namespace

// Interpolation

TEST_CASE("a reference becomes the value it names, with its type") {
  check_resolves(
      "name: run\noutput_dir: runs/${name}/x\noptimizer: {lr: 1e-3, text: '5', list: [1, {a: b}]}\n"
      "lr: ${optimizer.lr}\nquoted: \"${optimizer.lr}\"\ntext: ${optimizer.text}\nlist: ${optimizer.list}\n"
      "item: ${optimizer.list[1].a}\nmap: ${optimizer.list[1]}\nboth: ${name}-${optimizer.lr}\nnothing: null\n"
      "none: ${nothing}\n",
      {},
      "{name: run, output_dir: runs/run/x, optimizer: {lr: 1e-3, text: '5', list: [1, {a: b}]}, lr: 1e-3, quoted: "
      "1e-3, "
      "text: '5', list: [1, {a: b}], item: b, map: {a: b}, both: run-1e-3, nothing: null, none: null}");
}

TEST_CASE("a reference is resolved after merging and overrides, whatever the order of the lines") {
  check_resolves("a: ${b}\nb: ${c.d}x\nc: {d: 1}\n", {"c.d=2", "e=${a}!"}, "{a: 2x, b: 2x, c: {d: 2}, e: 2x!}");
}

TEST_CASE("a reference may pass through another reference") {
  check_resolves(
      "data: {train: {root: r, n: [1, 2]}, eval: '${data.train}'}\nx: ${data.eval.root}\ny: ${data.eval.n[1]}\n", {},
      "{data: {train: {root: r, n: [1, 2]}, eval: {root: r, n: [1, 2]}}, x: r, y: 2}");
}

TEST_CASE("a substituted value stands where the reference stands, what is inside it where it was written") {
  const ResolvedRecipe recipe = resolve("a:\n  b: 1\nc:\n  ${a}\nd: x${a.b}\n");
  CHECK(node_at(recipe.value, "c").place().to_string() == "a.yaml:4:3");
  CHECK(node_at(recipe.value, "c.b").place().to_string() == "a.yaml:2:6");
  CHECK(node_at(recipe.value, "d").place().to_string() == "a.yaml:5:4");
  CHECK(node_at(recipe.value, "d").quoted());
}

TEST_CASE("the environment's text is a plain scalar where it stands alone") {
  const EnvironmentVariable number("TRAINRUN_TEST_A", "32");
  const EnvironmentVariable empty("TRAINRUN_TEST_B", "");
  const EnvironmentVariable unset("TRAINRUN_TEST_C", std::nullopt);
  const EnvironmentVariable dollars("TRAINRUN_TEST_D", "a${b}: c");
  check_resolves(
      "n: ${env:TRAINRUN_TEST_A}\nq: \"${env:TRAINRUN_TEST_A}\"\nt: x${env:TRAINRUN_TEST_A}\n"
      "e: ${env:TRAINRUN_TEST_B}\ne2: x${env:TRAINRUN_TEST_B}\ne3: ${env:TRAINRUN_TEST_B:-d}\n"
      "d: ${env:TRAINRUN_TEST_C:-1e-3}\nd2: \"${env:TRAINRUN_TEST_C:-}\"\nd3: x${env:TRAINRUN_TEST_C:-}\n"
      "d4: ${env:TRAINRUN_TEST_C:-tcp://h:80}\nd5: ${env:TRAINRUN_TEST_C:-runs/${n}}\n"
      "d6: ${env:TRAINRUN_TEST_C:-${env:TRAINRUN_TEST_A}}\nroot: \"${env:TRAINRUN_TEST_C:-data}/mnist\"\n"
      "literal: ${env:TRAINRUN_TEST_D}\n",
      {},
      "{n: 32, q: 32, t: x32, e: null, e2: x, e3: d, d: 1e-3, d2: null, d3: x, d4: 'tcp://h:80', d5: runs/32, d6: 32, "
      "root: data/mnist, literal: 'a${b}: c'}");
}

TEST_CASE("a variable that is not set is a problem that names it") {
  const EnvironmentVariable unset("TRAINRUN_TEST_C", std::nullopt);
  const EnvironmentVariable bytes("TRAINRUN_TEST_E", "\xFF");
  CHECK(errors_of("a:\n  - x${env:TRAINRUN_TEST_C}\n") ==
        "a.yaml:2:5: a[0]: the environment variable TRAINRUN_TEST_C is not set; set it, or write "
        "${env:TRAINRUN_TEST_C:-default}");
  CHECK(errors_of("a: ${env:TRAINRUN_TEST_E}\n") ==
        "a.yaml:1:4: a: the environment variable TRAINRUN_TEST_E is not UTF-8");
}

TEST_CASE("$${ is a literal ${") {
  const ResolvedRecipe recipe = resolve("a: $${name}\nb: x$${b}${c}\nc: 1\nd: costs 5$\n");
  CHECK(errors_of(recipe) == "");
  CHECK(node_at(recipe.value, "a").text() == "${name}");
  CHECK(node_at(recipe.value, "b").text() == "x${b}1");
  CHECK(node_at(recipe.value, "d").text() == "costs 5$");
}

TEST_CASE("keys are not interpolated") { check_resolves("a: 1\n${a}: 2\n", {}, "{a: 1, '${a}': 2}"); }

TEST_CASE("references that go wrong are problems, all of them, and stay as written") {
  const FaultyRecipe cases[] = {
      {"optimizer: {lr: 1}\na: ${optimzer.lr}\n",
       "a.yaml:2:4: a: ${optimzer.lr}: no value named optimzer.lr; did you mean optimizer.lr?"},
      {"optimizer: {lr: 1}\na: ${optimizer.learning_rate}\n",
       "a.yaml:2:4: a: ${optimizer.learning_rate}: no value named optimizer.learning_rate; did you mean optimizer.lr?"},
      {"optimizer: {momentum: 1}\na: ${momentum}\n",
       "a.yaml:2:4: a: ${momentum}: no value named momentum; did you mean optimizer.momentum?"},
      {"a: ${HOME}\n", "a.yaml:1:4: a: ${HOME}: no value named HOME; did you mean ${env:HOME}?"},
      {"a: ${zzz}\n", "a.yaml:1:4: a: ${zzz}: no value named zzz"},
      {"l: [1]\na: ${l[1]}\n", "a.yaml:2:4: a: ${l[1]}: l has 1 item, counted from 0"},
      {"l: [1]\na: ${l.x}\n", "a.yaml:2:4: a: ${l.x}: l is a list and has no keys"},
      {"l: {}\na: ${l[0]}\n", "a.yaml:2:4: a: ${l[0]}: l is a mapping, not a list"},
      {"s: 3\na: ${s.x}\n", "a.yaml:2:4: a: ${s.x}: s is 3 and has no keys"},
      {"l: [1]\na: x${l}\n", "a.yaml:2:4: a: ${l} is a list and cannot be part of a string"},
      {"m: {}\na: x${m}\n", "a.yaml:2:4: a: ${m} is a mapping and cannot be part of a string"},
      {"n: null\na: x${n}\n", "a.yaml:2:4: a: ${n} is null and cannot be part of a string"},
      {"a: x${b\n", "a.yaml:1:4: a: '${' without '}'; write $${ for a literal ${"},
      {"a: ${}\n", "a.yaml:1:4: a: ${}: a name is missing"},
      {"a: ${a}\n", "a.yaml:1:4: a: refers to itself: a -> a"},
      {"a: x${b}\nb: ${c}\nc: ${a}\n", "a.yaml:1:4: a: refers to itself: b -> c -> a -> b"},
      {"m: {x: '${m}'}\n", "a.yaml:1:8: m.x: refers to itself: m -> m"},
      {"l: ['${l[1]}', '${l[0]}']\n", "a.yaml:1:5: l[0]: refers to itself: l[1] -> l[0] -> l[1]"},
      {"a: ${a.b}\n", ""},
      {"a: ${b.x}\nb: ${a.x}\n", ""},
  };
  for (const FaultyRecipe& reference_case : cases) {
    INFO(reference_case.input);
    const ResolvedRecipe recipe = resolve(reference_case.input);
    if (reference_case.expected.empty()) {
      CHECK(errors_of(recipe).find("leads to itself") != std::string::npos);
    } else {
      CHECK(errors_of(recipe) == reference_case.expected);
    }
    CHECK(same_recipe(recipe.value, parse_good_value(reference_case.input)));
  }
  CHECK(resolve("a: ${x}${y}\nb: ${z}\nc: {d: '${w}'}\n").problems.size() == 4);
}

TEST_CASE("expansion by references is bounded in size, depth and length of chains") {
  std::string laughs = "a0: [x, x, x, x, x, x, x, x, x, x]\n";
  std::string texts = "t0: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n";
  std::string nested = "n0: [x]\n";
  std::string chain = "c0: x\n";
  std::string follow = "f0: {x: {x: y}}\n";
  for (int i = 1; i < 100; ++i) {
    const std::string n = std::to_string(i);
    const std::string before = std::to_string(i - 1);
    laughs += "a" + n + ":";
    texts += "t" + n + ": ";
    for (int j = 0; j < 10; ++j) laughs += "\n- ${a" + before + "}";
    laughs += '\n';
    for (int j = 0; j < 10; ++j) texts += "${t" + before + "}";
    texts += '\n';
    nested += "n" + n + ":\n  - - - ${n" + before + "}\n";
    chain += "c" + n + ": ${c" + before + "}\n";
    follow += "f" + n + ": {x: '${f" + before + ".x.x}', y: '${f" + before + ".x}'}\n";
  }
  CHECK(errors_of(laughs).find("more than 100000 values, with references replaced") != std::string::npos);
  CHECK(errors_of(texts).find("more than 100000 values, with references replaced") != std::string::npos);
  CHECK(errors_of(nested).find("nested deeper than 64 levels, with references replaced") != std::string::npos);
  CHECK(errors_of(chain) == "");  // each is resolved when the next asks for it
  std::string backwards;
  for (int i = 0; i < 100; ++i) backwards += "c" + std::to_string(i) + ": ${c" + std::to_string(i + 1) + "}\n";
  CHECK(errors_of(backwards + "c100: x\n").find("more than 32 references that lead to each other") !=
        std::string::npos);
  CHECK(errors_of(follow) != "");
  std::string fallbacks = "x";
  for (int i = 0; i < 2000; ++i) fallbacks = "${env:TRAINRUN_TEST_UNSET:-" + fallbacks + "}";
  CHECK(errors_of("a: \"" + fallbacks + "\"\n").find("more than 8 defaults within each other") != std::string::npos);
}

// Blocks

TEST_CASE("within a block its own parameters stay, other references are replaced") {
  const std::string text =
      "width: 8\nname: n\n"
      "model:\n"
      "  blocks:\n"
      "    basic:\n"
      "      parameters: {channels: null, stride: 1, name: x, twice: '${channels}'}\n"
      "      layers:\n"
      "        - {type: Conv2d, out_channels: \"${channels}\", stride: '${stride}', k: '${width}', n: "
      "'${name}-${width}'}\n"
      "        - {type: X, mixed: '${width}/${channels}', literal: '$${channels}'}\n"
      "    plain: {layers: ['${width}', '${channels}']}\n"
      "  layers: ['${width}']\n";
  const ResolvedRecipe recipe = resolve(text);
  CHECK(errors_of(recipe) == "a.yaml:10:34: model.blocks.plain.layers[1]: ${channels}: no value named channels");
  const Value& layer = node_at(recipe.value, "model.blocks.basic.layers[0]");
  CHECK(node_at(layer, "out_channels").text() == "${channels}");
  CHECK(node_at(layer, "k").scalar_type() == ScalarType::kInteger);
  CHECK(node_at(layer, "n").text() == "${name}-8");
  CHECK(node_at(recipe.value, "model.blocks.basic.layers[1].mixed").text() == "8/${channels}");
  CHECK(node_at(recipe.value, "model.blocks.basic.parameters.twice").text() == "${channels}");
  const Value used = substitute(
      node_at(recipe.value, "model.blocks.basic.layers"),
      {{"channels", parse_good_value("64")}, {"stride", parse_good_value("2")}, {"name", parse_good_value("me")}});
  CHECK(same_meaning(used, parse_good_value("[{type: Conv2d, out_channels: 64, stride: 2, k: 8, n: me-8}, "
                                            "{type: X, mixed: 8/64, literal: '${channels}'}]")));
}

TEST_CASE("an expression becomes its value, wherever its names are") {
  check_resolves("a: 6\nb: ${a * 7}\nc: ${(a + 1) // 2}\nd: ${a / 4}\ne: ${not f}\nf: ${a > 5}\n", {},
                 "{a: 6, b: 42, c: 3, d: 1.5, e: false, f: true}");
  check_resolves("a: 6\nname: x-${a * 2}-${ a - 1 }\n", {}, "{a: 6, name: x-12-5}");
  check_resolves("l: [{n: 3}]\nx: ${l[0].n % 2 == 1 and true}\n", {}, "{l: [{n: 3}], x: true}");
  check_resolves("a-b: 1\nx: ${a-b}\n", {}, "{a-b: 1, x: 1}");
  check_resolves("a: 8\nx: ${b * 2}\nb: ${a / 4}\n", {}, "{a: 8, x: 4, b: 2}");
  check_resolves("x: $${a * 2}\n", {}, "{x: '${a * 2}'}");
}

TEST_CASE("an expression without a value is a problem at its place") {
  CHECK(errors_of("a: 6\nb: ${a // 0}\n") == "a.yaml:2:4: b: ${a // 0}: division by zero");
  CHECK(errors_of("a: 6\nb: ${a * }\n") == "a.yaml:2:4: b: ${a * }: an operand is missing at the end");
  CHECK(errors_of("a: [6]\nb: ${a * 2}\n") ==
        "a.yaml:2:4: b: ${a * 2}: a is a list, not a number, a text, true or false");
  CHECK(errors_of("width: 6\nb: ${widht * 2}\n") ==
        "a.yaml:2:4: b: ${widht * 2}: no value named widht; did you mean width?");
  CHECK(errors_of("a: 6\nb: ${a-1}\n") ==
        "a.yaml:2:4: b: ${a-1}: no value named a-1; to subtract, put spaces around the '-'");
  CHECK(errors_of("a: ${a + 1}\n").find("refers to itself") != std::string::npos);
  CHECK(errors_of("a: ${env:HOME * 2}\n").find("is not the name of an environment variable") != std::string::npos);
}

TEST_CASE("an expression of a block's parameters waits until the block is used") {
  const ResolvedRecipe recipe = resolve(
      "width: 8\nlast: x\n"
      "model: {blocks: {b: {parameters: {c: 1, last: false}, x: ['${c * 2 + width}', 'k${c // 2}-${width * 2}', "
      "'${not last}', '${width * 3}', '${c / 0}']}}}\n");
  CHECK(errors_of(recipe) == "");
  CHECK(node_at(recipe.value, "model.blocks.b.x[0]").text() == "${c * 2 + 8}");
  CHECK(node_at(recipe.value, "model.blocks.b.x[3]").text() == "24");
  std::vector<Problem> problems;
  const Value used = substitute(node_at(recipe.value, "model.blocks.b.x"),
                                {{"c", parse_good_value("64")}, {"last", parse_good_value("true")}}, &problems);
  CHECK(same_meaning(used, parse_good_value("[136, k32-16, false, 24, '${c / 0}']")));
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].message == "${c / 0}: division by zero");
}

TEST_CASE("a parameter's near match is suggested within its block") {
  CHECK(errors_of("model: {blocks: {b: {parameters: {channels: 1}, layers: ['${chanels}']}}}\n") ==
        "a.yaml:1:58: model.blocks.b.layers[0]: ${chanels}: no value named chanels; did you mean the parameter "
        "channels?");
}

TEST_CASE("literal text that looks like a parameter is not taken for one when the block is used") {
  const EnvironmentVariable literal("TRAINRUN_TEST_D", "${c}");
  const ResolvedRecipe recipe = resolve(
      "text: $${c}\nhalf: '{c}'\ndollar: a$\n"
      "model: {blocks: {b: {parameters: {c: 1}, x: ['${text}', 'a${text}${c}', '${env:TRAINRUN_TEST_D}', "
      "'${dollar}{c}', '${env:TRAINRUN_TEST_UNSET:-${c}}']}}}\n");
  CHECK(errors_of(recipe) == "");
  const Value used = substitute(node_at(recipe.value, "model.blocks.b.x"), {{"c", parse_good_value("7")}});
  CHECK(same_meaning(used, parse_good_value("['${c}', 'a${c}7', '${c}', 'a${c}', 7]")));
  CHECK(errors_of("dollar: a$\nmodel: {blocks: {b: {parameters: {c: 1}, x: '${dollar}${c}'}}}\n")
            .find("a '$' comes to stand right before the ${…} of a parameter") != std::string::npos);
}

TEST_CASE("values of a block can be referred to, its parameters cannot") {
  const std::string block = "model:\n  blocks:\n    b: {parameters: {c: 64}, k: 3, lit: '$${c}', layers: ['${c}']}\n";
  check_resolves(
      block + "x: ${model.blocks.b.parameters.c}\ny: ${model.blocks.b.k}\nz: ${model.blocks.b.lit}\n", {},
      "{model: {blocks: {b: {parameters: {c: 64}, k: 3, lit: '$${c}', layers: ['${c}']}}}, x: 64, y: 3, z: '${c}'}");
  CHECK(errors_of(block + "x: ${model.blocks.b.layers}\n") ==
        "a.yaml:4:4: x: ${model.blocks.b.layers} holds the block's parameter ${c}, which has no value here");
  CHECK(errors_of(block + "x: ${model.blocks}\n") ==
        "a.yaml:4:4: x: ${model.blocks} holds blocks and cannot be copied; refer to what is inside it");
  CHECK(errors_of(block + "x: ${model}\n") ==
        "a.yaml:4:4: x: ${model} holds blocks and cannot be copied; refer to what is inside it");
}

}  // namespace trainrun
