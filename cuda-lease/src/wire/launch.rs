//! The fields of submissions: tickets, regions and launches.

use std::borrow::Cow;

use cuda_core::{
    Access, LaunchConfig, Ticket,
    protocol::{
        AllocId, FunctionId, GraphId, Launch, LaunchAttributes, ModuleId, Pattern, PoolId, Region,
        Relocation, StreamId, Use,
    },
};

use super::{Field, Reader, WireError, Writer};

macro_rules! ids {
    ($($id:ident)*) => {$(
        impl Field for $id {
            #[inline]
            fn put(&self, w: &mut Writer<'_>) {
                w.put(self.0);
            }

            #[inline]
            fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
                r.get().map(Self)
            }
        }
    )*};
}

ids! { StreamId AllocId ModuleId GraphId PoolId }

impl Field for Ticket {
    #[inline]
    fn put(&self, w: &mut Writer<'_>) {
        w.put(self.stream).put(self.number);
    }

    #[inline]
    fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self { stream: r.get()?, number: r.get()? })
    }
}

impl Field for Region {
    #[inline]
    fn put(&self, w: &mut Writer<'_>) {
        w.put(self.alloc).put(self.offset);
    }

    #[inline]
    fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self { alloc: r.get()?, offset: r.get()? })
    }
}

impl Field for Access {
    fn put(&self, w: &mut Writer<'_>) {
        w.put(*self == Access::Write);
    }

    #[inline]
    fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(if r.get()? { Access::Write } else { Access::Read })
    }
}

impl Field for Pattern {
    fn put(&self, w: &mut Writer<'_>) {
        let value = match self {
            Pattern::Byte(value) => u32::from(*value),
            Pattern::Half(value) => u32::from(*value),
            Pattern::Word(value) => *value,
        };
        w.put(self.bytes() as u8).put(value);
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let (bytes, value) = (r.get::<u8>()?, r.get::<u32>()?);
        let too_large = |_| WireError::Undefined { what: "a pattern", value: value.into() };
        match bytes {
            1 => value.try_into().map(Pattern::Byte).map_err(too_large),
            2 => value.try_into().map(Pattern::Half).map_err(too_large),
            4 => Ok(Pattern::Word(value)),
            other => Err(WireError::Undefined { what: "a pattern's size", value: other.into() }),
        }
    }
}

impl Field for Relocation {
    fn put(&self, w: &mut Writer<'_>) {
        w.put(self.at).put(self.region).put(self.bytes).put(self.access);
    }

    #[inline]
    fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self { at: r.get()?, region: r.get()?, bytes: r.get()?, access: r.get()? })
    }
}

impl Field for Use {
    fn put(&self, w: &mut Writer<'_>) {
        w.put(self.base).put(self.range.start).put(self.range.end).put(self.access);
    }

    #[inline]
    fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self { base: r.get()?, range: r.get()?..r.get()?, access: r.get()? })
    }
}

/// The bytes of a [`Relocation`], and of a [`Use`].
const OPERAND_BYTES: usize = 25;

pub(super) fn put_launch(w: &mut Writer<'_>, launch: &Launch<'_>) {
    let LaunchConfig { grid, block, shared_bytes, .. } = launch.config;
    w.put(launch.function.module).put(launch.function.entry);
    w.put(grid).put(block).put(shared_bytes).put_bytes(&launch.params);
    w.put_list(&launch.relocations, |w, it| it.put(w));
    w.put_list(&launch.variables, |w, it| it.put(w));
}

/// Reads a launch with attributes, which come first.
pub(super) fn get_launch_with<'a>(r: &mut Reader<'a>) -> Result<Launch<'a>, WireError> {
    let attributes = r.get()?;
    let mut launch = get_launch(r)?;
    launch.config.attributes = attributes;
    Ok(launch)
}

#[inline]
fn get_config(r: &mut Reader<'_>) -> Result<LaunchConfig, WireError> {
    let ([gx, gy, gz], [x, y, z]): ([u32; 3], [u32; 3]) = (r.get()?, r.get()?);
    Ok(LaunchConfig::new(gx, x).grid(gx, gy, gz).block(x, y, z).shared_bytes(r.get()?))
}

/// The cluster in x, y and z, and the flags: a byte each.
impl Field for LaunchAttributes {
    fn put(&self, w: &mut Writer<'_>) {
        w.put_raw(&self.to_bytes());
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let bytes: [u8; 4] = [r.get()?, r.get()?, r.get()?, r.get()?];
        let undefined = WireError::Undefined { what: "launch attributes", value: bytes[3].into() };
        Self::from_bytes(bytes).ok_or(undefined)
    }
}

/// The shape of a launch, and its attributes.
impl Field for LaunchConfig {
    fn put(&self, w: &mut Writer<'_>) {
        w.put(self.grid).put(self.block).put(self.shared_bytes).put(self.attributes);
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let config = get_config(r)?;
        Ok(Self { attributes: r.get()?, ..config })
    }
}

impl Field for FunctionId {
    fn put(&self, w: &mut Writer<'_>) {
        w.put(self.module).put(self.entry);
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self { module: r.get()?, entry: r.get()? })
    }
}

#[inline]
pub(super) fn get_launch<'a>(r: &mut Reader<'a>) -> Result<Launch<'a>, WireError> {
    Ok(Launch {
        function: FunctionId { module: r.get()?, entry: r.get()? },
        config: get_config(r)?,
        params: Cow::Borrowed(r.get_bytes()?),
        relocations: r.get_list(OPERAND_BYTES, Relocation::get)?.into(),
        variables: r.get_list(OPERAND_BYTES, Use::get)?.into(),
    })
}
