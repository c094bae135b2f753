#include "registry/formats/text/jinja/block.h"

#include <algorithm>
#include <utility>

namespace trainrun::jinja {

using Kind = Token::Kind;

void Block::add(int line, int height, Statement statement) {
  if (height >= kMostHeight) fail_at(line, "blocks are too deep: more than 100 within each other");
  height_ = std::max(height_, height + 1);
  lines_.push_back({line, std::move(statement)});
}

Flow Block::run(Context& context) const {
  for (const Line& line : lines_) {
    context.line = line.number;
    context.budget.spend();
    const Flow flow = line.statement(context);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Flow Block::run_inside(Context& context, Scope& scope) const {
  Scope* const outer = context.scope;
  context.scope = &scope;
  const Flow flow = run(context);
  context.scope = outer;
  return flow;
}

std::string Block::text(Context& context) const {
  std::string written;
  std::string* const out = context.out;
  context.out = &written;
  Scope scope{context.scope, {}};
  run_inside(context, scope);
  context.out = out;
  return written;
}

namespace {

void write(Context& context, const std::string& text) {
  context.budget.build(text.size());
  *context.out += text;
}

/// What a block wrote, for the filters behind it, under a name that no template can say.
constexpr const char* kWritten = "\nwritten";
Expression what_was_written() {
  return {[](Context& c) { return *c.scope->find(kWritten); }, 0};
}

Expression constant_true() {
  return {[](Context&) { return Value::flag(true); }, 0};
}

}  // namespace

Block BlockParser::whole() {
  Block made;
  while (tokens_.peek().kind != Kind::kEnd) statement(made);
  return made;
}

SharedBlock BlockParser::block(const std::vector<std::string_view>& ends) {
  const int begun = tokens_.line();
  if (++nesting_ > kMostHeight) tokens_.fail("blocks are too deep: more than 100 within each other");
  auto made = std::make_shared<Block>();
  while (true) {
    if (tokens_.peek().kind == Kind::kEnd) {
      fail_at(begun, "the block that begins here is not followed by {% " + std::string(ends.back()) + " %}");
    }
    if (tokens_.peek().kind == Kind::kBlockBegin) {
      const Token begin = tokens_.next();
      const Token& name = tokens_.peek();
      if (std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return name.is_name(end); })) break;
      statement(*made);
    } else {
      statement(*made);
    }
  }
  --nesting_;
  return made;
}

/// The block up to its end tag, which is passed.
SharedBlock BlockParser::body(const std::vector<std::string_view>& ends) {
  SharedBlock made = block(ends);
  tokens_.next();
  end_tag();
  return made;
}

/// The same for a block whose text is kept, so that no loop around it can be left from within.
SharedBlock BlockParser::kept_body(std::string_view end) {
  const int loops = std::exchange(loops_, 0);
  SharedBlock made = body({end});
  loops_ = loops;
  return made;
}

/// A statement whose "{%" may have been passed already.
void BlockParser::statement(Block& into) {
  const int line = tokens_.line();
  if (tokens_.peek().kind == Kind::kData) {
    into.add(line, 0, [text = tokens_.next().text](Context& c) {
      write(c, text);
      return Flow::kNext;
    });
    return;
  }
  if (tokens_.peek().kind == Kind::kVariableBegin) {
    tokens_.next();
    const Expression value = expressions_.tuple();
    tokens_.expect_kind(Kind::kVariableEnd, "}}");
    into.add(line, value.height(), [value](Context& c) {
      write(c, str(value(c), c.budget));
      return Flow::kNext;
    });
    return;
  }
  if (tokens_.peek().kind == Kind::kBlockBegin) tokens_.next();
  const std::string name = tokens_.expect_name();
  if (name == "for") return for_loop(into, line);
  if (name == "if") return if_else(into, line);
  if (name == "set") return set(into, line);
  if (name == "macro") return macro(into, line);
  if (name == "call") return call_block(into, line);
  if (name == "filter") return filter_block(into, line);
  if (name == "with") return with(into, line);
  if (name == "generation") return generation(into, line);
  if (name == "break") return control(into, line, Flow::kBreak);
  if (name == "continue") return control(into, line, Flow::kContinue);
  fail_at(line, "{% " + name + " %} is not expected here, or not known in chat templates");
}

void BlockParser::control(Block& into, int line, Flow flow) {
  if (loops_ == 0) fail_at(line, "break and continue are for loops");
  end_tag();
  into.add(line, 0, [flow](Context&) { return flow; });
}

BlockParser::Target BlockParser::single_target(bool has_attributes) {
  const std::string name = tokens_.expect_name();
  if (name == "true" || name == "false" || name == "none" || name == "True" || name == "False" || name == "None") {
    tokens_.fail(name + " cannot be assigned to");
  }
  if (has_attributes && tokens_.skip(".")) {
    const std::string attribute = tokens_.expect_name();
    if (attribute.starts_with('_')) tokens_.fail("the attributes of a namespace cannot begin with _");
    return [name, attribute](Context& c, const Value& value) {
      const Value* found = c.scope->find(name);
      Namespace* space = found ? found->as_namespace() : nullptr;
      if (!space) throw TemplateError("'" + name + "' is not a namespace, so its attributes cannot be set");
      if (value.depth() >= kMostDepth)
        throw TemplateError("a namespace cannot hold functions, namespaces, or lists that are 100 deep");
      for (auto& [key, held] : space->attributes) {
        if (key != attribute) continue;
        held = value;
        return;
      }
      space->attributes.emplace_back(attribute, value);
    };
  }
  return [name](Context& c, const Value& value) { c.scope->variables.insert_or_assign(name, value); };
}

BlockParser::Target BlockParser::target(bool has_attributes) {
  const bool in_brackets = tokens_.skip("(");
  std::vector<Target> targets = {single_target(has_attributes)};
  const bool several = tokens_.peek().is_operator(",");
  while (tokens_.skip(",")) {
    if (tokens_.peek().kind != Kind::kName || tokens_.peek().is_name("in")) break;
    targets.push_back(single_target(has_attributes));
  }
  if (in_brackets) tokens_.expect(")");
  if (!several) return targets[0];
  return [targets](Context& c, const Value& value) {
    const Value parts = iterated(value, c.budget);
    const Values& items = parts.as_list()->items;
    if (items.size() != targets.size()) {
      throw TemplateError("there are " + std::to_string(items.size()) + " values for " +
                          std::to_string(targets.size()) + " names");
    }
    for (size_t i = 0; i < targets.size(); ++i) targets[i](c, items[i]);
  };
}

namespace {

/// What a for goes through: those for which the condition holds.
Value chosen_items(Context& c, const Value& all, const std::function<void(Context&, const Value&)>& assign,
                   const Expression& condition) {
  Values items;
  for (const Value& item : all.as_list()->items) {
    Scope scope{c.scope, {}};
    Scope* const outer = c.scope;
    c.scope = &scope;
    assign(c, item);
    const bool holds = is_true(condition(c));
    c.scope = outer;
    if (holds) items.push_back(item);
  }
  return Value::list(std::move(items), c.budget);
}

}  // namespace

void BlockParser::for_loop(Block& into, int line) {
  const Target assign = target(false);
  if (!tokens_.skip_name("in")) tokens_.fail_here();
  const Expression of = expressions_.tuple(/*has_condition=*/false);
  const bool filters = tokens_.skip_name("if");
  const Expression condition = filters ? expressions_.expression() : constant_true();
  if (tokens_.peek().is_name("recursive")) tokens_.fail("recursive loops are not supported");
  end_tag();
  ++loops_;
  const SharedBlock body = block({"else", "endfor"});
  --loops_;
  SharedBlock otherwise = std::make_shared<Block>();
  const bool has_else = tokens_.next().text == "else";
  end_tag();
  if (has_else) otherwise = this->body({"endfor"});
  const int height = std::max({of.height(), condition.height(), body->height(), otherwise->height()});
  into.add(line, height, [=](Context& c) {
    Value all = iterated(of(c), c.budget);
    if (filters) all = chosen_items(c, all, assign, condition);
    const auto loop = std::make_shared<Loop>(Loop{all.shared_list(), 0, {}});
    for (; loop->index < loop->items->items.size(); ++loop->index) {
      Scope scope{c.scope, {}};
      Scope* const outer = c.scope;
      c.scope = &scope;
      assign(c, loop->items->items[loop->index]);
      c.scope = outer;
      scope.variables.insert_or_assign("loop", Value::of(loop));
      if (body->run_inside(c, scope) == Flow::kBreak) break;
    }
    if (!loop->items->items.empty()) return Flow::kNext;
    Scope scope{c.scope, {}};
    return otherwise->run_inside(c, scope);
  });
}

void BlockParser::if_else(Block& into, int line) {
  std::vector<std::pair<Expression, SharedBlock>> branches;
  int height = 0;
  for (bool more = true; more;) {
    const Expression condition = expressions_.tuple(/*has_condition=*/false);
    end_tag();
    branches.emplace_back(condition, block({"elif", "else", "endif"}));
    const std::string next = tokens_.next().text;
    more = next == "elif";
    if (next == "endif") end_tag();
    if (next == "else") {
      end_tag();
      branches.emplace_back(constant_true(), body({"endif"}));
    }
  }
  for (const auto& [condition, branch] : branches) height = std::max({height, condition.height(), branch->height()});
  into.add(line, height, [branches](Context& c) {
    for (const auto& [condition, branch] : branches) {
      if (is_true(condition(c))) return branch->run(c);
    }
    return Flow::kNext;
  });
}

void BlockParser::set(Block& into, int line) {
  const Target assign = target(true);
  if (tokens_.skip("=")) {
    const Expression value = expressions_.tuple();
    end_tag();
    into.add(line, value.height(), [assign, value](Context& c) {
      assign(c, value(c));
      return Flow::kNext;
    });
    return;
  }
  const Expression text = expressions_.filters(what_was_written());
  end_tag();
  const SharedBlock own = kept_body("endset");
  into.add(line, std::max(own->height(), text.height()), [assign, own, text](Context& c) {
    c.scope->variables.insert_or_assign(kWritten, Value::text(own->text(c), c.budget));
    assign(c, text(c));
    return Flow::kNext;
  });
}

void BlockParser::filter_block(Block& into, int line) {
  const Expression text = expressions_.filters(what_was_written(), /*begun=*/true);
  end_tag();
  const SharedBlock own = kept_body("endfilter");
  into.add(line, std::max(own->height(), text.height()), [own, text](Context& c) {
    c.scope->variables.insert_or_assign(kWritten, Value::text(own->text(c), c.budget));
    write(c, str(text(c), c.budget));
    return Flow::kNext;
  });
}

void BlockParser::with(Block& into, int line) {
  std::vector<std::pair<Target, Expression>> given;
  int height = 0;
  while (tokens_.peek().kind != Kind::kBlockEnd) {
    if (!given.empty()) tokens_.expect(",");
    const Target assign = single_target(false);
    tokens_.expect("=");
    given.emplace_back(assign, expressions_.expression());
    height = std::max(height, given.back().second.height());
  }
  end_tag();
  const SharedBlock own = body({"endwith"});
  into.add(line, std::max(height, own->height()), [given, own](Context& c) {
    Scope scope{c.scope, {}};
    Values values;
    for (const auto& [assign, value] : given) values.push_back(value(c));
    Scope* const outer = c.scope;
    c.scope = &scope;
    for (size_t i = 0; i < given.size(); ++i) given[i].first(c, values[i]);
    c.scope = outer;
    return own->run_inside(c, scope);
  });
}

/// What the assistant says: its place in the text is kept.
void BlockParser::generation(Block& into, int line) {
  end_tag();
  marks_ = true;
  const SharedBlock own = kept_body("endgeneration");
  into.add(line, own->height(), [own](Context& c) {
    const std::string text = own->text(c);
    if (c.out != c.whole) c.marked_elsewhere = true;
    c.marked.emplace_back(c.out->size(), c.out->size() + text.size());
    write(c, text);
    return Flow::kNext;
  });
}

}  // namespace trainrun::jinja
