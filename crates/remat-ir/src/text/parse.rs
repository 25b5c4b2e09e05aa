//! The parser: recursive descent over the tokens, with a limit to the depth of nesting.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::Arc;

use super::lex::{Token, error_at, lex, placed};
use super::policy::{memory, policy};
use crate::{
    Atom, Atoms, Aval, DType, Eqn, Error, ErrorKind, Jaxpr, Literal, Loc, Op, Param, ParamMap, Result, Shape, Var,
    VarMap, Vars, counted,
};

/// How deep programs, tuples and policies may nest in text. Deeper nesting would overflow the stack.
const MAX_DEPTH: usize = 200;

impl Jaxpr {
    /// Parses a program. Constants, which come before the semicolon, become the first inputs.
    ///
    /// ```
    /// use remat_ir::Jaxpr;
    /// let text = "{ lambda ; a:f32[3]. let b:f32[3] = sin a in (b,) }";
    /// assert_eq!(Jaxpr::parse(text)?.to_string(), text);
    /// let error = Jaxpr::parse("{ lambda ; a:f32[3]. let b:f32[4] = sin a in (b,) }").unwrap_err();
    /// assert_eq!(error.to_string(), "sin: line 1, column 26: `b` is written as f32[4] and the result is f32[3]");
    /// # Ok::<(), remat_ir::Error>(())
    /// ```
    ///
    /// # Errors
    /// With line and column, if the text is not a program, a variable is used before it is defined or defined twice, an
    /// operation does not take its operands, or an output is written with another aval than the operation gives.
    pub fn parse(text: &str) -> Result<Jaxpr> {
        Ok(Jaxpr::parse_closed(text)?.0)
    }

    /// Parses a program as [`Jaxpr::parse`] does, and returns how many of its first inputs are constants.
    ///
    /// # Errors
    /// As [`Jaxpr::parse`].
    pub fn parse_closed(text: &str) -> Result<(Jaxpr, usize)> {
        Parser::new(text)?.program()
    }

    /// Parses a program that may break the rules, with the avals as written; [`check`](crate::check()) reports all of its faults.
    ///
    /// # Errors
    /// With line and column, if the text does not have the form of a program, or a variable is never defined.
    pub fn parse_unchecked(text: &str) -> Result<Jaxpr> {
        Ok(Parser { checks: false, ..Parser::new(text)? }.program()?.0)
    }
}

impl FromStr for Jaxpr {
    type Err = Error;

    fn from_str(text: &str) -> Result<Jaxpr> {
        Jaxpr::parse(text)
    }
}

/// Reads tokens from left to right.
pub(super) struct Parser<'t> {
    text: &'t str,
    tokens: Vec<(Token<'t>, usize)>,
    /// The index of the next token.
    at: usize,
    depth: usize,
    /// Whether equations are checked as they are read.
    checks: bool,
    /// The programs bound by `let` before.
    shared: HashMap<&'t str, Arc<Jaxpr>>,
}

/// The state of a program while it is parsed.
#[derive(Default)]
struct Scope<'t> {
    jaxpr: Jaxpr,
    vars: HashMap<&'t str, Var>,
    /// For each variable that was used before its definition, the token of the first use.
    undefined: VarMap<Option<usize>>,
}

impl<'t> Parser<'t> {
    pub(super) fn new(text: &'t str) -> Result<Parser<'t>> {
        Ok(Parser { text, tokens: lex(text)?, at: 0, depth: 0, checks: true, shared: HashMap::new() })
    }

    /// The next token.
    pub(super) fn peek(&self) -> &Token<'t> {
        self.peek_at(0)
    }

    pub(super) fn peek_at(&self, ahead: usize) -> &Token<'t> {
        self.tokens.get(self.at + ahead).map_or(&Token::End, |(token, _)| token)
    }

    pub(super) fn advance(&mut self) {
        self.at += 1;
    }

    /// An error at the next token.
    pub(super) fn message(&self, message: &str) -> Error {
        self.error(self.at, message.into())
    }

    /// An error about the next token.
    pub(super) fn expected(&self, what: &str) -> Error {
        self.error(self.at, format!("expected {what}, found {}", self.peek()))
    }

    fn error(&self, token: usize, message: String) -> Error {
        error_at(self.text, self.byte(token), message)
    }

    /// An operation's own error, with the position of a token.
    fn error_of(&self, token: usize, error: Error) -> Error {
        let message = placed(self.text, self.byte(token), error.message());
        Error::new(error.kind(), error.operation(), message)
    }

    fn byte(&self, token: usize) -> usize {
        self.tokens.get(token).map_or(self.text.len(), |t| t.1)
    }

    fn is_mark(&self, mark: char) -> bool {
        *self.peek() == Token::Mark(mark)
    }

    /// Takes the mark if it is the next token.
    fn skip_mark(&mut self, mark: char) -> bool {
        let is_next = self.is_mark(mark);
        self.at += usize::from(is_next);
        is_next
    }

    pub(super) fn mark(&mut self, mark: char) -> Result<()> {
        if self.skip_mark(mark) { Ok(()) } else { Err(self.expected(&format!("`{mark}`"))) }
    }

    fn word(&mut self, what: &str) -> Result<&'t str> {
        let Token::Word(word) = *self.peek() else { return Err(self.expected(what)) };
        self.advance();
        Ok(word)
    }

    fn keyword(&mut self, keyword: &str) -> Result<()> {
        if *self.peek() != Token::Word(keyword) {
            return Err(self.expected(&format!("`{keyword}`")));
        }
        self.advance();
        Ok(())
    }

    pub(super) fn end(&mut self) -> Result<()> {
        if *self.peek() == Token::End { Ok(()) } else { Err(self.expected("the end")) }
    }

    /// Items between commas up to a closing mark, after the opening one; a comma after the last is allowed.
    pub(super) fn until<T>(&mut self, close: char, item: impl Fn(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut items = Vec::new();
        while !self.skip_mark(close) {
            items.push(item(self)?);
            if !self.skip_mark(',') && !self.is_mark(close) {
                return Err(self.expected(&format!("`,` or `{close}`")));
            }
        }
        Ok(items)
    }

    /// Parses something that may nest.
    pub(super) fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth == MAX_DEPTH {
            return Err(self.error(self.at, format!("nested deeper than {MAX_DEPTH}")));
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    fn program(mut self) -> Result<(Jaxpr, usize)> {
        while *self.peek() == Token::Word("let") {
            self.advance();
            let at = self.at;
            let name = self.word("the name of a program")?;
            self.mark('=')?;
            let jaxpr = Arc::new(self.body()?);
            if self.shared.insert(name, jaxpr).is_some() {
                return Err(self.error(at, format!("`{name}` is bound twice")));
            }
            self.keyword("in")?;
        }
        let program = self.jaxpr()?;
        self.end()?;
        Ok(program)
    }

    /// A program without constants.
    fn body(&mut self) -> Result<Jaxpr> {
        let at = self.at;
        match self.jaxpr()? {
            (jaxpr, 0) => Ok(jaxpr),
            _ => Err(self.error(at, "a program inside another has no constants".to_string())),
        }
    }

    fn jaxpr(&mut self) -> Result<(Jaxpr, usize)> {
        self.mark('{')?;
        self.keyword("lambda")?;
        let mut scope = Scope::default();
        self.inputs(&mut scope)?;
        let num_consts = scope.jaxpr.ins.len();
        if !self.skip_mark(';') {
            return Err(self.expected("an input or `;`"));
        }
        self.inputs(&mut scope)?;
        if !self.skip_mark('.') {
            return Err(self.expected("an input or `.`"));
        }
        self.keyword("let")?;
        while !self.is_in() {
            let eqn = self.eqn(&mut scope)?;
            scope.jaxpr.eqns.push(eqn);
            self.skip_mark(';');
        }
        self.keyword("in")?;
        self.mark('(')?;
        while !self.skip_mark(')') {
            let Some(atom) = self.atom(&mut scope)? else { return Err(self.expected("an output or `)`")) };
            scope.jaxpr.outs.push(atom);
            if !self.skip_mark(',') && !self.is_mark(')') {
                return Err(self.expected("`,` or `)`"));
            }
        }
        self.mark('}')?;
        if let Some(token) = scope.undefined.iter().find_map(|(_, token)| *token) {
            return Err(self.error(token, format!("{} is never defined", self.tokens[token].0)));
        }
        Ok((scope.jaxpr, num_consts))
    }

    /// Whether the outputs come next. A variable may be called `in`, but no parenthesis follows it.
    fn is_in(&self) -> bool {
        *self.peek() == Token::Word("in") && *self.peek_at(1) == Token::Mark('(')
    }

    fn is_binder(&self) -> bool {
        matches!(self.peek(), Token::Word(_)) && *self.peek_at(1) == Token::Mark(':')
    }

    fn inputs(&mut self, scope: &mut Scope<'t>) -> Result<()> {
        while self.is_binder() {
            let binder = self.binder()?;
            let var = self.define(scope, binder)?;
            scope.jaxpr.ins.push(var);
        }
        Ok(())
    }

    fn binder(&mut self) -> Result<Binder<'t>> {
        let token = self.at;
        let name = self.word("a variable")?;
        self.mark(':')?;
        Ok(Binder { token, name, aval: self.aval()? })
    }

    fn define(&mut self, scope: &mut Scope<'t>, binder: Binder<'t>) -> Result<Var> {
        let Binder { token, name, aval } = binder;
        if let Some(&var) = scope.vars.get(name) {
            if self.checks {
                return Err(self.error(token, format!("`{name}` is defined twice")));
            }
            if scope.undefined[var].take().is_some() {
                scope.jaxpr.avals[var] = aval;
            }
            return Ok(var);
        }
        let var = scope.jaxpr.avals.push(aval);
        scope.undefined.push(None);
        if name != "_" {
            scope.vars.insert(name, var);
        }
        Ok(var)
    }

    fn eqn(&mut self, scope: &mut Scope<'t>) -> Result<Eqn> {
        let mut binders = Vec::new();
        while self.is_binder() {
            binders.push(self.binder()?);
        }
        if !self.skip_mark('=') {
            return Err(self.expected(if binders.is_empty() { "an equation or `in (`" } else { "an output or `=`" }));
        }
        let at = self.at;
        let name = self.word("an operation")?;
        let params = ParamMap::new(name, self.params()?);
        let op = Op::parse(name, &params).map_err(|e| self.error_of(at, e))?;
        let mut ins = Atoms::new();
        while !self.is_in()
            && let Some(atom) = self.atom(scope)?
        {
            ins.push(atom);
        }
        if self.checks {
            self.check(scope, at, &op, &ins, &binders)?;
        }
        let outs = binders.into_iter().map(|b| self.define(scope, b)).collect::<Result<Vars>>()?;
        Ok(Eqn { outs, op, ins, loc: Loc::UNKNOWN })
    }

    /// Fails unless the operation gives the avals that are written.
    fn check(&self, scope: &Scope<'t>, at: usize, op: &Op, ins: &[Atom], binders: &[Binder<'t>]) -> Result<()> {
        let avals: Vec<Aval> = ins.iter().map(|&a| scope.jaxpr.atom_aval(a)).collect();
        let outs = op.infer(&avals).map_err(|e| self.error_of(at, e))?;
        let error = |token, message| self.error_of(token, Error::new(ErrorKind::Parse, op.name(), message));
        if outs.len() != binders.len() {
            let (results, outputs) = (counted(outs.len(), "result"), counted(binders.len(), "output"));
            return Err(error(at, format!("gives {results} and the equation has {outputs}")));
        }
        for (binder, out) in binders.iter().zip(&outs) {
            if binder.aval != *out {
                let message = format!("`{}` is written as {} and the result is {out}", binder.name, binder.aval);
                return Err(error(binder.token, message));
            }
        }
        Ok(())
    }

    /// A variable or a literal, or `None` if neither comes next: a word before a colon begins the next equation.
    fn atom(&mut self, scope: &mut Scope<'t>) -> Result<Option<Atom>> {
        if self.is_literal() {
            return Ok(Some(Atom::Lit(self.literal()?)));
        }
        let Token::Word(name) = *self.peek() else { return Ok(None) };
        if self.is_binder() {
            return Ok(None);
        }
        let token = self.at;
        self.advance();
        if let Some(&var) = scope.vars.get(name) {
            return Ok(Some(Atom::Var(var)));
        }
        if self.checks {
            return Err(self.error(token, format!("`{name}` is not defined")));
        }
        let var = scope.jaxpr.avals.push(Aval::scalar(DType::Bool));
        scope.undefined.push(Some(token));
        scope.vars.insert(name, var);
        Ok(Some(Atom::Var(var)))
    }

    /// Whether a literal comes next: a number with a dtype, or a word for a value, with a dtype.
    fn is_literal(&self) -> bool {
        let next = self.peek_at(1);
        match self.peek() {
            Token::Number(_) | Token::Word("True" | "False" | "inf") => *next == Token::Mark(':'),
            Token::Word("nan") => matches!(next, Token::Mark(':' | '(')),
            Token::Text(_) | Token::Word(_) | Token::Mark(_) | Token::End => false,
        }
    }

    fn literal(&mut self) -> Result<Literal> {
        let token = self.at;
        let (Token::Number(value) | Token::Word(value)) = *self.peek() else { return Err(self.expected("a literal")) };
        self.advance();
        let mut bits = None;
        if self.skip_mark('(') {
            let Token::Number(text) = *self.peek() else { return Err(self.expected("the bits of the value")) };
            bits = text.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
            if bits.is_none() {
                return Err(self.expected("the bits of the value"));
            }
            self.advance();
            self.mark(')')?;
        }
        self.mark(':')?;
        let dtype = self.dtype()?;
        self.mark('[')?;
        self.mark(']')?;
        let literal = match bits {
            Some(bits) => Some(Literal::from_bits(dtype, bits)).filter(|l| l.bits() == bits && l.as_f64().is_nan()),
            None => literal(dtype, value),
        };
        literal.ok_or_else(|| self.error(token, format!("`{value}` is not a value of {dtype}")))
    }

    fn dtype(&mut self) -> Result<DType> {
        let Token::Word(name) = *self.peek() else { return Err(self.expected("a dtype")) };
        let dtype = DType::from_name(name).ok_or_else(|| self.expected("a dtype"))?;
        self.advance();
        Ok(dtype)
    }

    fn aval(&mut self) -> Result<Aval> {
        let token = self.at;
        let dtype = self.dtype()?;
        let mut aval = Aval::scalar(dtype);
        if self.skip_mark('<') {
            aval.memory = memory(self)?;
            self.mark('>')?;
        }
        self.mark('[')?;
        aval.shape = self.until(']', Self::size)?.into_iter().collect::<Shape>();
        match aval.excess() {
            None => Ok(aval),
            Some(excess) => Err(self.error(token, format!("{aval} {excess}"))),
        }
    }

    fn size(&mut self) -> Result<usize> {
        let Token::Number(text) = *self.peek() else { return Err(self.expected("a size or `]`")) };
        let size = text.parse().map_err(|_| self.expected("a size"))?;
        self.advance();
        Ok(size)
    }

    fn params(&mut self) -> Result<Vec<(Arc<str>, Param)>> {
        let mut params: Vec<(Arc<str>, Param)> = Vec::new();
        if !self.skip_mark('[') {
            return Ok(params);
        }
        while !self.skip_mark(']') {
            let at = self.at;
            let name = self.word("a parameter or `]`")?;
            if params.iter().any(|(n, _)| **n == *name) {
                return Err(self.error(at, format!("parameter `{name}` is given twice")));
            }
            self.mark('=')?;
            let value = if name == "policy" {
                Param::Policy(Arc::new(policy(self)?))
            } else if name.ends_with("jaxpr") {
                self.shared_jaxpr()?
            } else if name == "branches" {
                self.jaxprs()?
            } else {
                self.value()?
            };
            params.push((name.into(), value));
        }
        Ok(params)
    }

    /// A program, the name of one that was bound before, or `None`.
    fn shared_jaxpr(&mut self) -> Result<Param> {
        if self.is_mark('{') {
            return self.nested(|p| Ok(Param::Jaxpr(Arc::new(p.body()?))));
        }
        let Token::Word(name) = *self.peek() else { return Err(self.expected("a program")) };
        if name == "None" {
            self.advance();
            return Ok(Param::None);
        }
        let Some(jaxpr) = self.shared.get(name) else {
            return Err(self.error(self.at, format!("no program is bound to `{name}`")));
        };
        let jaxpr = jaxpr.clone();
        self.advance();
        Ok(Param::Jaxpr(jaxpr))
    }

    fn jaxprs(&mut self) -> Result<Param> {
        self.mark('(')?;
        let mut items = Vec::new();
        while !self.skip_mark(')') {
            items.push(self.shared_jaxpr()?);
        }
        Ok(Param::Tuple(items))
    }

    fn value(&mut self) -> Result<Param> {
        if self.is_literal() {
            return Ok(Param::Literal(self.literal()?));
        }
        let value = match self.peek() {
            Token::Mark('(') => {
                self.advance();
                return self.nested(|p| Ok(Param::Tuple(p.until(')', Self::value)?)));
            }
            Token::Mark('[') => {
                self.advance();
                return self.nested(|p| Ok(Param::List(p.until(']', Self::value)?)));
            }
            Token::Word("None") => Param::None,
            Token::Word("True") => Param::Bool(true),
            Token::Word("False") => Param::Bool(false),
            Token::Word(word) => match DType::from_name(word) {
                Some(dtype) => Param::DType(dtype),
                None => Param::word(word),
            },
            Token::Text(text) => Param::word(text),
            Token::Number(digits) => match digits.parse() {
                Ok(value) => Param::Int(value),
                Err(_) => return Err(self.expected("an integer of 64 bits")),
            },
            Token::Mark(_) | Token::End => return Err(self.expected("a value")),
        };
        self.advance();
        Ok(value)
    }
}

/// The definition of a variable.
struct Binder<'t> {
    token: usize,
    name: &'t str,
    aval: Aval,
}

/// The literal with this text, if the dtype has it: integers must fit, floats are rounded.
fn literal(dtype: DType, text: &str) -> Option<Literal> {
    if dtype == DType::Bool {
        return match text {
            "True" => Some(Literal::from_bool(true)),
            "False" => Some(Literal::from_bool(false)),
            _ => None,
        };
    }
    if dtype.is_integer() {
        let value: i128 = text.parse().ok()?;
        let literal = Literal::from_i128(dtype, value);
        return (literal.as_i128() == Some(value)).then_some(literal);
    }
    // Through f64 the digits of an f32 could be rounded twice.
    let value = if dtype == DType::F32 { text.parse::<f32>().ok()?.into() } else { text.parse::<f64>().ok()? };
    Some(Literal::from_f64(dtype, value))
}
