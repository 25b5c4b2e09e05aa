//! Operations, regions and values.

use remat_ir::Result;

use super::Tables;
use super::attributes::AttrId;
use super::cursor::{Cursor, damaged};
use super::types::{Count, TypeId};

/// How deep regions may be nested. JAX nests one for each loop and branch.
const DEPTH: usize = 100;

/// The section that holds regions of an operation which see no values around them.
const IR: u8 = 4;

/// A value: an argument of a block or a result of an operation. Numbers are those of the order in the file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ValueId(pub(crate) u32);

/// The number of the name of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NameId(pub(crate) u32);

/// An operation.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Its name.
    pub name: NameId,
    /// Where it begins in the file.
    pub offset: usize,
    /// Its location.
    pub location: AttrId,
    /// A dictionary of attributes beside those that its dialect defines.
    pub dictionary: Option<AttrId>,
    /// The attributes that its dialect defines, in the order of their names; empty for an operation of a dialect that is not known.
    pub properties: Vec<Option<AttrId>>,
    /// The values that it takes.
    pub operands: Vec<ValueId>,
    /// The values that it gives.
    pub results: Vec<ValueId>,
    /// Its bodies.
    pub regions: Vec<Region>,
}

/// A body of an operation.
#[derive(Clone, Debug, Default)]
pub struct Region {
    /// Its blocks: one in structured programs, or none.
    pub blocks: Vec<Block>,
}

/// A list of operations with arguments.
#[derive(Clone, Debug, Default)]
pub struct Block {
    /// Its arguments.
    pub arguments: Vec<ValueId>,
    /// Its operations in order.
    pub operations: Vec<Operation>,
}

/// The parts of an operation that are there.
mod mask {
    pub(super) const ATTRIBUTES: u8 = 0x01;
    pub(super) const RESULTS: u8 = 0x02;
    pub(super) const OPERANDS: u8 = 0x04;
    pub(super) const SUCCESSORS: u8 = 0x08;
    pub(super) const REGIONS: u8 = 0x10;
    pub(super) const USE_ORDERS: u8 = 0x20;
    pub(super) const PROPERTIES: u8 = 0x40;
    pub(super) const ALL: u8 = 0x7F;
}

/// The values of one region while it is read. Their numbers are counted from that of the first.
struct Scope {
    first: u64,
    count: u64,
    values: Vec<ValueId>,
}

/// Reads the operations of a file.
pub(super) struct Reader<'a, 'b> {
    tables: &'b Tables<'a>,
    /// The type of each value.
    value_types: Vec<TypeId>,
    /// The regions around the present operation, from the last that is isolated on.
    scopes: Vec<Scope>,
}

/// The operations of the outermost block, and the type of each value.
pub(super) fn read<'a>(cursor: &mut Cursor<'a>, tables: &Tables<'a>) -> Result<(Block, Vec<TypeId>)> {
    let mut reader = Reader { tables, value_types: Vec::new(), scopes: Vec::new() };
    let block = reader.block(cursor, 0)?;
    cursor.finish("the section of operations")?;
    Ok((block, reader.value_types))
}

impl<'a> Reader<'a, '_> {
    fn block(&mut self, cursor: &mut Cursor<'a>, depth: usize) -> Result<Block> {
        let (count, has_arguments) = cursor.varint_with_flag()?;
        let count = cursor.fits(count, "operations").map_err(|message| cursor.error(message))?;
        let arguments = if has_arguments { self.arguments(cursor)? } else { Vec::new() };
        let mut operations = Vec::new();
        for _ in 0..count {
            operations.push(self.operation(cursor, depth)?);
        }
        Ok(Block { arguments, operations })
    }

    fn arguments(&mut self, cursor: &mut Cursor<'a>) -> Result<Vec<ValueId>> {
        let count = cursor.count("arguments")?;
        let mut arguments = Vec::new();
        for _ in 0..count {
            let (ty, has_location) = cursor.index_with_flag(self.tables.types.len(), "type")?;
            if has_location {
                self.attribute(cursor)?;
            }
            arguments.push(self.define(TypeId(ty), cursor)?);
        }
        if cursor.byte()? != 0 {
            skip_use_orders(cursor, count)?;
        }
        Ok(arguments)
    }

    fn attribute(&self, cursor: &mut Cursor<'a>) -> Result<AttrId> {
        cursor.index(self.tables.attributes.len(), "attribute").map(AttrId)
    }

    fn operation(&mut self, cursor: &mut Cursor<'a>, depth: usize) -> Result<Operation> {
        let offset = cursor.offset();
        let name = NameId(cursor.index(self.tables.names.len(), "name of an operation")?);
        let mask = cursor.byte()?;
        if mask & !mask::ALL != 0 {
            return Err(damaged(offset, format_args!("an operation has unknown parts: {mask:#010b}")));
        }
        let has = |part: u8| mask & part != 0;
        let location = self.attribute(cursor)?;
        let dictionary = if has(mask::ATTRIBUTES) { Some(self.attribute(cursor)?) } else { None };
        let properties = if has(mask::PROPERTIES) { self.properties(cursor, name)? } else { Vec::new() };
        let mut types = Vec::new();
        if has(mask::RESULTS) {
            let count = cursor.count("results")?;
            types = (0..count).map(|_| Count(self.tables.types.len()).id(cursor)).collect::<Result<_>>()?;
        }
        let mut operands = Vec::new();
        if has(mask::OPERANDS) {
            let count = cursor.count("operands")?;
            operands = (0..count).map(|_| self.operand(cursor)).collect::<Result<_>>()?;
        }
        if has(mask::SUCCESSORS) {
            return Err(damaged(offset, "jumps between blocks do not belong in such a program"));
        }
        if has(mask::USE_ORDERS) {
            skip_use_orders(cursor, types.len())?;
        }
        let (count, is_isolated) = if has(mask::REGIONS) { cursor.varint_with_flag()? } else { (0, false) };
        let count = cursor.fits(count, "regions").map_err(|message| damaged(offset, message))?;
        let results = types.into_iter().map(|ty| self.define(ty, cursor)).collect::<Result<_>>()?;
        let regions = self.regions(cursor, count, is_isolated, depth)?;
        Ok(Operation { name, offset, location, dictionary, properties, operands, results, regions })
    }

    /// The properties of an operation lie in a table of their own.
    fn properties(&self, cursor: &mut Cursor<'a>, name: NameId) -> Result<Vec<Option<AttrId>>> {
        let name = &self.tables.names[name.0 as usize];
        let index = cursor.index(self.tables.properties.len(), "row of properties")?;
        let mut row = self.tables.properties[index as usize].clone();
        let length = row.count("bytes of properties")?;
        if length != row.len() {
            return Err(row.error(format_args!("{length} bytes of properties lie in a row of {}", row.len())));
        }
        let Some(properties) = name.properties else { return Ok(Vec::new()) };
        let context = self.tables.context();
        let read = |is_optional: bool, row: &mut Cursor<'a>| match is_optional {
            true => context.optional(row),
            false => context.attr(row).map(Some),
        };
        let values = properties.split_ascii_whitespace().map(|word| read(word.ends_with('?'), &mut row));
        let values = values.collect::<Result<_>>()?;
        row.finish("a row of properties")?;
        Ok(values)
    }

    fn regions(
        &mut self,
        cursor: &mut Cursor<'a>,
        count: usize,
        is_isolated: bool,
        depth: usize,
    ) -> Result<Vec<Region>> {
        if count > 0 && depth == DEPTH {
            return Err(cursor.error(format_args!("regions are nested more than {DEPTH} deep")));
        }
        if count == 0 || !is_isolated {
            return (0..count).map(|_| self.region(cursor, depth)).collect();
        }
        let (section, mut part) = cursor.section()?;
        if section != IR {
            return Err(part.error(format_args!("section {section} stands where regions are expected")));
        }
        let around = std::mem::take(&mut self.scopes);
        let regions = (0..count).map(|_| self.region(&mut part, depth)).collect::<Result<_>>()?;
        part.finish("a section of regions")?;
        self.scopes = around;
        Ok(regions)
    }

    fn region(&mut self, cursor: &mut Cursor<'a>, depth: usize) -> Result<Region> {
        let count = cursor.count("blocks")?;
        if count == 0 {
            return Ok(Region::default());
        }
        let values = cursor.count("values")? as u64;
        let first = self.scopes.last().map_or(0, |scope| scope.first + scope.count);
        self.scopes.push(Scope { first, count: values, values: Vec::new() });
        let blocks = (0..count).map(|_| self.block(cursor, depth + 1)).collect::<Result<_>>()?;
        self.scopes.pop();
        Ok(Region { blocks })
    }

    fn define(&mut self, ty: TypeId, cursor: &Cursor<'a>) -> Result<ValueId> {
        let id = u32::try_from(self.value_types.len()).map_err(|_| cursor.error("the file has too many values"))?;
        let Some(scope) = self.scopes.last_mut().filter(|scope| (scope.values.len() as u64) < scope.count) else {
            return Err(cursor.error("a region has more values than it says"));
        };
        scope.values.push(ValueId(id));
        self.value_types.push(ty);
        Ok(ValueId(id))
    }

    fn operand(&self, cursor: &mut Cursor<'a>) -> Result<ValueId> {
        let offset = cursor.offset();
        let index = cursor.varint()?;
        let scope = self.scopes.iter().rfind(|scope| scope.first <= index);
        let value = scope.and_then(|scope| scope.values.get(usize::try_from(index - scope.first).ok()?));
        value.copied().ok_or_else(|| damaged(offset, format_args!("value {index} is used before it is defined")))
    }
}

/// The order of the uses of values, which means nothing for the program.
fn skip_use_orders(cursor: &mut Cursor<'_>, values: usize) -> Result<()> {
    let count = if values > 1 { cursor.count("orders of uses")? } else { 1 };
    for _ in 0..count {
        if values > 1 {
            cursor.varint()?;
        }
        let (uses, _) = cursor.varint_with_flag()?;
        let uses = cursor.fits(uses, "uses").map_err(|message| cursor.error(message))?;
        for _ in 0..uses {
            cursor.varint()?;
        }
    }
    Ok(())
}
