#include <algorithm>
#include <ctime>

#include "registry/formats/text/jinja/block.h"
#include "registry/formats/text/jinja/template.h"

// Macros, calls of them with a block, and the template as a whole with the functions that every template has.

namespace trainrun::jinja {

std::vector<BlockParser::Parameter> BlockParser::parameters() {
  std::vector<Parameter> made;
  tokens_.expect("(");
  while (!tokens_.skip(")")) {
    if (!made.empty()) tokens_.expect(",");
    Parameter parameter{tokens_.expect_name(), {}};
    if (tokens_.skip("=")) {
      parameter.otherwise = expressions_.expression();
    } else if (!made.empty() && made.back().otherwise) {
      tokens_.fail("a parameter without a default cannot follow one with a default");
    }
    made.push_back(std::move(parameter));
  }
  return made;
}

namespace {

const Value* given_value(const Arguments& given, size_t i, const std::string& name) {
  if (i < given.positional.size()) return &given.positional[i];
  const auto found =
      std::find_if(given.named.begin(), given.named.end(), [&](const auto& one) { return one.first == name; });
  return found == given.named.end() ? nullptr : &found->second;
}

/// Calls that lie in each other are counted by how deep their blocks are.
class Descent {
 public:
  Descent(Context& context, int height) : context_(context), height_(height + 4) {
    context.depth += height_;
    if (context.depth > kMostCalled) throw TemplateError("macros call each other too deeply");
  }
  ~Descent() { context_.depth -= height_; }
  Descent(const Descent&) = delete;
  Descent& operator=(const Descent&) = delete;

 private:
  Context& context_;
  int height_;
};

}  // namespace

Value BlockParser::function_of(Context& context, const std::shared_ptr<const Macro>& macro) {
  return Value::function(macro->name, [&context, macro, outer = context.scope](Budget& budget, const Arguments& given) {
    if (given.positional.size() > macro->parameters.size()) {
      throw TemplateError(macro->name + " takes " + std::to_string(macro->parameters.size()) + " arguments, not " +
                          std::to_string(given.positional.size()));
    }
    for (const auto& [name, unused] : given.named) {
      const bool known = name == "caller" || std::any_of(macro->parameters.begin(), macro->parameters.end(),
                                                         [&key = name](const auto& p) { return p.name == key; });
      if (!known) throw TemplateError(macro->name + " has no parameter '" + name + "'");
    }
    int height = macro->body->height();
    for (const Parameter& parameter : macro->parameters) height = std::max(height, parameter.otherwise.height());
    const Descent descent(context, height);
    const int line = context.line;
    Scope scope{outer, {}};
    Scope* const caller = context.scope;
    context.scope = &scope;
    for (size_t i = 0; i < macro->parameters.size(); ++i) {
      const Parameter& parameter = macro->parameters[i];
      const Value* value = given_value(given, i, parameter.name);
      Value own = value ? *value
                        : (parameter.otherwise ? parameter.otherwise(context)
                                               : Value::undefined("'" + parameter.name + "' is not given"));
      scope.variables.insert_or_assign(parameter.name, std::move(own));
    }
    if (const Value* block = given_value(given, SIZE_MAX, "caller")) scope.variables.insert_or_assign("caller", *block);
    std::string text = macro->body->text(context);
    context.scope = caller;
    context.line = line;
    return Value::text(std::move(text), budget);
  });
}

void BlockParser::macro(Block& into, int line) {
  auto made = std::make_shared<Macro>();
  made->name = tokens_.expect_name();
  made->parameters = parameters();
  end_tag();
  made->body = kept_body("endmacro");
  into.add(line, 0, [made = std::shared_ptr<const Macro>(made)](Context& c) {
    c.scope->variables.insert_or_assign(made->name, function_of(c, made));
    return Flow::kNext;
  });
}

void BlockParser::call_block(Block& into, int line) {
  auto made = std::make_shared<Macro>();
  made->name = "caller";
  if (tokens_.peek().is_operator("(")) made->parameters = parameters();
  const Expression callee = expressions_.callee();
  const CallArguments given = expressions_.arguments();
  end_tag();
  made->body = kept_body("endcall");
  into.add(line, std::max(callee.height(), given.height),
           [callee, given, made = std::shared_ptr<const Macro>(made)](Context& c) {
             const Value function = callee(c);
             Arguments values = given.evaluate(c);
             values.named.emplace_back("caller", function_of(c, made));
             const std::string text = str(call(c.budget, function, values), c.budget);
             c.budget.build(text.size());
             *c.out += text;
             return Flow::kNext;
           });
}

namespace {

Value range(Budget& budget, const Arguments& given) {
  constexpr int64_t kMost = 100'000;  // that of Jinja's sandbox
  const Bound bound("range", given, {"start", "stop", "step"}, 1);
  const int64_t begin = bound[1] ? bound.integer(0, 0) : 0;
  const int64_t end = bound[1] ? bound.integer(1, 0) : bound.integer(0, 0);
  const int64_t step = bound.integer(2, 1);
  if (step == 0) throw TemplateError("range's step cannot be 0");
  Values items;
  for (__int128 i = begin; step > 0 ? i < end : i > end; i += step) {
    if (items.size() >= kMost) throw TemplateError("range returns more than 100000 numbers");
    items.push_back(Value::integer(static_cast<int64_t>(i)));
  }
  return Value::list(std::move(items), budget);
}

Value make_dict(Budget& budget, const Arguments& given) {
  std::vector<std::pair<Value, Value>> members;
  if (given.positional.size() > 1) throw TemplateError("dict takes one dict and arguments with names");
  for (const Value& base : given.positional) {
    if (!base.as_dict()) throw TemplateError("dict takes one dict and arguments with names");
    members = base.as_dict()->members;
  }
  for (const auto& [name, value] : given.named) members.emplace_back(Value::text(name, budget), value);
  return Value::dict(std::move(members), budget);
}

Value make_namespace(Budget& budget, const Arguments& given) {
  const Value made = make_dict(budget, given);
  auto space = std::make_shared<Namespace>();
  for (const auto& [name, value] : made.as_dict()->members) {
    if (!name.as_text()) throw TemplateError("the attributes of a namespace are named by texts");
    if (name.as_text()->starts_with('_')) throw TemplateError("the attributes of a namespace cannot begin with _");
    space->attributes.emplace_back(*name.as_text(), value);
  }
  return Value::of(std::move(space));
}

Value raise(Budget& budget, const Arguments& given) {
  throw TemplateError(str(Bound("raise_exception", given, {"message"}, 1).at(0), budget));
}

Value now(Budget& budget, const Arguments& given) {
  const std::string format = Bound("strftime_now", given, {"format"}, 1).text(0, "");
  const std::time_t seconds = std::time(nullptr);
  std::tm local = {};
  localtime_r(&seconds, &local);
  char text[512];
  const size_t length = std::strftime(text, sizeof text, format.c_str(), &local);
  if (length == 0 && !format.empty()) throw TemplateError("strftime_now returns nothing, or too much, for its format");
  return Value::text(std::string(text, length), budget);
}

}  // namespace

Template::Template(std::string_view source) {
  constexpr size_t kMostSource = size_t{1} << 20;
  if (source.size() > kMostSource) throw TemplateError("the template is longer than 1 MiB");
  TokenStream tokens(tokens_of(source));
  BlockParser parser(tokens);
  block_ = std::make_unique<const Block>(parser.whole());
  marks_ = parser.marks();
}

Template::~Template() = default;
Template::Template(Template&&) noexcept = default;

Rendered Template::render(const std::map<std::string, Value>& variables) const {
  Rendered made;
  Context context;
  Scope globals;
  globals.variables = {{"range", Value::function("range", range)},
                       {"dict", Value::function("dict", make_dict)},
                       {"namespace", Value::function("namespace", make_namespace)},
                       {"raise_exception", Value::function("raise_exception", raise)},
                       {"strftime_now", Value::function("strftime_now", now)}};
  for (const auto& [name, value] : variables) globals.variables.insert_or_assign(name, value);
  Scope scope{&globals, {}};
  context.scope = &scope;
  context.out = context.whole = &made.text;
  try {
    block_->run(context);
  } catch (const TemplateError& error) {
    fail_at(context.line, error.what());
  }
  if (context.marked_elsewhere)
    fail_at(1, "{% generation %} lies in a macro, or a block that is kept; its place is not known");
  made.marked = std::move(context.marked);
  return made;
}

}  // namespace trainrun::jinja
